#!/usr/bin/env python3
"""What TensorBoard itself finds in a run's event files.

    check_tensorboard.py FOLDER             prints JSON: {"scalars": {tag: [[step, value], ..]},
                                            "histograms": {tag: [[step, [[left, right, count], ..]], ..]}}
    check_tensorboard.py --server FOLDER    asks the data server that TensorBoard starts where it can, not the reader in Python
    check_tensorboard.py --bytes            prints the small file of the test in crates/report/src/tensorboard/, as TensorBoard's
                                            own writer makes it, as hexadecimal digits

Needs tensorboard (`pip install tensorboard`). Numbers that JSON does not have are printed as "nan", "inf" and "-inf". A folder to
try: cargo run --release -p equipoise-report --example events -- FOLDER
"""
import argparse
import io
import json
import math
import time

from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.context import RequestContext
from tensorboard.data import server_ingester
from tensorboard.plugins.histogram import metadata
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util import grpc_util, tensor_util

ALL = {"scalars": 0, "histograms": 0}
MANY = 10**9
WHICH = {"ctx": RequestContext(), "experiment_id": ""}


def small():
    """A version, a start at step 3, two scalars of step 3, a histogram of step 300."""
    numbers = tensor_util.make_tensor_proto([[-1.0, 0.5, 2.0], [0.5, 2.0, 7.0]], dtype="float64")
    bars = Summary.Value(tag="bars", tensor=numbers, metadata=metadata.create_summary_metadata(None, None))
    values = [Summary.Value(tag="loss", simple_value=0.25), Summary.Value(tag="größe/µ", simple_value=math.nan)]
    file = io.BytesIO()
    for event in [
        Event(wall_time=1700000000.5, file_version="brain.Event:2"),
        Event(wall_time=1700000000.5, step=3, session_log=SessionLog(status=SessionLog.START)),
        Event(wall_time=1700000001.5, step=3, summary=Summary(value=values)),
        Event(wall_time=1700000002.5, step=300, summary=Summary(value=[bars])),
    ]:
        RecordWriter(file).write(event.SerializeToString())
    return file.getvalue()


def python(folder):
    runs = plugin_event_multiplexer.EventMultiplexer({".": folder}, tensor_size_guidance=ALL)
    runs.Reload()
    return data_provider.MultiplexerDataProvider(runs, folder)


def server(folder):
    start = server_ingester.SubprocessServerDataIngester(
        server_ingester.get_server_binary(), folder, reload_interval=0, samples_per_plugin=ALL,
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL)
    start.start()
    server.alive = start  # it ends with its standard input
    time.sleep(2)
    seen = None  # it answers before it has read everything
    while seen != (seen := repr(start.data_provider.list_scalars(**WHICH, plugin_name="scalars"))):
        time.sleep(1)
    return start.data_provider


def plain(x):
    """Numbers and lists as JSON has them."""
    return [plain(y) for y in x] if isinstance(x, list) else x if math.isfinite(x) else str(x)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--server", action="store_true")
parser.add_argument("--bytes", action="store_true")
parser.add_argument("folder", nargs="?")
args = parser.parse_args()
if args.bytes:
    print(small().hex())
elif args.folder:
    reader = (server if args.server else python)(args.folder)
    scalars = reader.read_scalars(**WHICH, plugin_name="scalars", downsample=MANY).get(".", {})
    tensors = reader.read_tensors(**WHICH, plugin_name="histograms", downsample=MANY).get(".", {})
    print(json.dumps({
        "scalars": {tag: [[e.step, plain(float(e.value))] for e in all] for tag, all in sorted(scalars.items())},
        "histograms": {tag: [[e.step, plain(e.numpy.tolist())] for e in all] for tag, all in sorted(tensors.items())},
    }, allow_nan=False))
else:
    parser.error("a folder, or --bytes")
