//! Tables in their text formats.

mod common;

use common::{folder, nine};
use equipoise_report::comparison::Comparison;
use equipoise_report::run::RecordedRun;
use equipoise_report::table::{Entry, Table};

fn table() -> Table {
    let accuracy = |mean: f64, sd: Option<f64>, best: bool| Entry::Accuracy { mean, sd, best };
    let text = |text: &str| Entry::Text(text.to_owned());
    Table {
        title: "a dataset, 50 %".to_owned(),
        columns: ["criterion", "seeds", "Many, \"all\"", "Few|b"].map(str::to_owned).into(),
        rows: vec![
            vec![
                text("softmax"),
                Entry::Count(3),
                accuracy(98.249, Some(0.8), false),
                accuracy(28.8, Some(8.0), false),
            ],
            vec![
                text("a_b, <i> |x\\ [1] *"),
                Entry::Count(3),
                accuracy(97.3, Some(0.31), true),
                accuracy(71.666_666, None, false),
            ],
            vec![
                text("$x$ & _y_ #1 ~^{}"),
                Entry::Count(0),
                Entry::Missing,
                Entry::Difference { mean: -1.25, half_width: Some(3.0), clear: false },
            ],
        ],
    }
}

#[test]
fn markdown() {
    let want = "\
| criterion | seeds | Many, \"all\" | Few\\|b |
| --- | ---: | ---: | ---: |
| softmax | 3 | 98.2 ± 0.8 | 28.8 ± 8.0 |
| a_b, &lt;i&gt; \\|x\\\\ \\[1\\] \\* | 3 | **97.3 ± 0.3** | 71.7 |
| \\$x\\$ &amp; \\_y\\_ #1 \\~^{} | 0 | n/a | -1.3 ± 3.0 n.d. |
";
    assert_eq!(table().markdown(), want);
}

#[test]
fn csv() {
    let want = "\
criterion,seeds,\"Many, \"\"all\"\"\",\"Many, \"\"all\"\" sd\",Few|b,Few|b sd\r
softmax,3,98.249,0.8,28.8,8\r
\"a_b, <i> |x\\ [1] *\",3,97.3,0.31,71.6667,\r
$x$ & _y_ #1 ~^{},0,,,-1.25,3\r
";
    assert_eq!(table().csv(), want);
}

#[test]
fn latex() {
    let want = "\
% a dataset, 50 %; needs \\usepackage{booktabs}
\\begin{tabular}{lrrr}
\\toprule
criterion & seeds & Many, {\"}all{\"} & Few\\textbar{}b \\\\
\\midrule
softmax & 3 & $98.2 \\pm 0.8$ & $28.8 \\pm 8.0$ \\\\
a\\_b, \\textless{}i\\textgreater{} \\textbar{}x\\textbackslash{} {[}1{]} {*} & 3 & $\\mathbf{97.3 \\pm 0.3}$ & $71.7$ \\\\
\\$x\\$ \\& \\_y\\_ \\#1 \\textasciitilde{}\\textasciicircum{}\\{\\} & 0 & n/a & $-1.3 \\pm 3.0$ n.d. \\\\
\\bottomrule
\\end{tabular}
";
    assert_eq!(table().latex(), want);
}

#[test]
fn plain() {
    let want = "\
a dataset, 50 %

criterion           seeds   Many, \"all\"             Few|b
softmax                 3  98.2 +- 0.8       28.8 +- 8.0
a_b, <i> |x\\ [1] *      3  97.3 +- 0.3*             71.7
$x$ & _y_ #1 ~^{}       0          n/a   -1.3 +- 3.0 n.d.
* distinguishable from every other number of its column (95 % confidence)
";
    assert_eq!(table().plain(), want);
    // what is not there needs no explanation
    let mut unmarked = table();
    unmarked.rows.remove(1);
    assert!(!unmarked.plain().contains('*'));
}

#[test]
fn control_characters_reach_no_terminal() {
    let mut table = table();
    table.title = "a\u{1b}[2J\nb".to_owned();
    table.rows[0][0] = Entry::Text("c\r\n\u{7}".to_owned());
    for text in [table.plain(), table.markdown(), table.latex()] {
        assert!(!text.contains(['\u{1b}', '\u{7}', '\r']), "{text}");
    }
    assert!(table.plain().starts_with("a␛[2J␊b\n"));
    // CSV can hold any character, so names are kept
    assert!(table.csv().contains("\"c\r\n\u{7}\","));
}

#[test]
fn tables_of_a_comparison() {
    let root = folder("tables");
    nine(&root);
    let comparison = Comparison::all(RecordedRun::all(&[root.to_path_buf()]).expect("runs").0).remove(0);
    let groups = Table::groups(&comparison);
    assert_eq!(groups.title, "made-up, resnet8 in bf16, 12 epochs: accuracy in %, last epoch");
    assert_eq!(groups.columns, ["criterion", "seeds", "Many", "Medium", "Few", "overall"]);
    assert_eq!(groups.rows.len(), 3);
    assert_eq!(groups.rows[1][..2], [Entry::Text("seesaw".to_owned()), Entry::Count(3)]);
    let bold = groups.markdown().matches("**").count() / 2;
    assert_eq!(bold, comparison.variants.iter().flat_map(|v| &v.cells).filter(|cell| cell.bold).count());
    let first = comparison.variants[0].cells[0].spread.expect("a value");
    assert_eq!(groups.rows[0][2], Entry::Accuracy { mean: first.mean, sd: first.sd, best: false });
    assert_eq!(Table::optimistic(&comparison), None);
    let differences = Table::differences(&comparison).expect("two others");
    assert_eq!(differences.title, "made-up, resnet8 in bf16, 12 epochs: difference from softmax in percentage points");
    assert_eq!(differences.rows.len(), 2);
    let classes = Table::classes(&comparison);
    assert_eq!(classes.columns, ["class", "group", "training images", "test images", "softmax", "seesaw", "cwap"]);
    assert_eq!(classes.rows.len(), 10);
    assert!(
        classes
            .csv()
            .starts_with("class,group,training images,test images,softmax,softmax low end of the 95 % interval,softmax high end of the 95 % interval,seesaw,")
    );
    let runs = Table::runs(&comparison);
    assert_eq!(runs.columns, ["criterion", "seed", "epochs", "precision", "overall", "images/s", "seconds", "commit"]);
    assert_eq!(runs.rows.len(), 9);
    for (row, run) in runs.rows.iter().zip(comparison.variants.iter().flat_map(|variant| &variant.runs)) {
        let run = &comparison.runs[*run];
        let result = run.result.as_ref().expect("it has finished");
        let top1 = result.last.as_ref().and_then(|last| last.metrics.top1).expect("a value");
        assert_eq!(row[1], Entry::Count(run.seed()));
        assert_eq!(row[3], Entry::Text("bf16".to_owned()));
        assert_eq!(row[4], Entry::Accuracy { mean: top1, sd: None, best: false });
        assert_eq!(row[7], Entry::Text(result.commit.clone()));
    }
}
