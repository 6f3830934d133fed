/* Latency and bandwidth between two processes, for tools/cluster_model.py, and the time of copies on one core.
 *   mpicc -O2 tools/ping_pong.c -o ping_pong && mpirun -n 2 --bind-to none ./ping_pong
 * Prints microseconds of an exchange of 256 bytes (MPI_Allgather, as after every batch norm), nanoseconds per byte that arrives of large
 * messages both ways at once, and nanoseconds per byte of a copy from memory to memory. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT = 256, LARGE = 1 << 20, PIECE = 1 << 15, SIZE = 1 << 27 };

int main(int argc, char **argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char own[SHORT] = {0}, all[2 * SHORT];
  double start = 0;
  for (int i = -100; i < 10000; i++) {
    if (i == 0) start = MPI_Wtime();
    MPI_Allgather(own, SHORT, MPI_BYTE, all, SHORT, MPI_BYTE, MPI_COMM_WORLD);
  }
  double latency = (MPI_Wtime() - start) / 10000;
  char *from = malloc(SIZE), *to = malloc(SIZE);
  memset(from, 1, SIZE);
  memset(to, 1, SIZE);
  MPI_Request both[2];
  for (int round = -1; round < 4; round++) {
    if (round == 0) start = MPI_Wtime();
    for (size_t at = 0; at < SIZE; at += LARGE) {
      MPI_Irecv(to + at, LARGE, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, both);
      MPI_Isend(from + at, LARGE, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, both + 1);
      MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    }
  }
  double message = (MPI_Wtime() - start) / 4 / SIZE;
  start = MPI_Wtime();
  for (int round = 0; round < 4; round++)
    for (size_t at = 0; at < SIZE; at += PIECE) memcpy(to + at, from + at, PIECE);
  double copy = (MPI_Wtime() - start) / 4 / SIZE;
  if (rank == 0) printf("exchange %.1f us, messages %.3f ns/byte, copies %.3f ns/byte\n", 1e6 * latency, 1e9 * message, 1e9 * copy);
  MPI_Finalize();
}
