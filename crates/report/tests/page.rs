//! The page, read back as XML: every number on it is that of the records, and nothing in the records becomes markup.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use common::{FakeRun, folder, names, nine};
use equipoise_report::comparison::Comparison;
use equipoise_report::page;
use equipoise_report::run::RecordedRun;
use roxmltree::{Document, Node, ParsingOptions};

fn comparisons(paths: &[PathBuf]) -> Vec<Comparison> {
    Comparison::all(RecordedRun::all(paths).expect("runs").0)
}

fn page_of(root: &Path) -> String {
    page(&comparisons(&[root.to_owned()]))
}

/// Reads a page and checks what holds for every page.
#[track_caller]
fn read(html: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let page = Document::parse_with_options(html, options).expect("well-formed");
    let mut ids = BTreeSet::new();
    let mut scripts = 0;
    for node in page.descendants().filter(Node::is_element) {
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            assert!(!name.starts_with("on"), "{name} would be executed");
            // displayed text and data for the script may say anything
            let is_text = name.starts_with("data-") || name == "aria-label" || name == "alt";
            assert!(is_text || !(value.starts_with("http") || value.starts_with("//")), "{name}={value}");
            assert!(name != "style" && name != "srcset" && name != "action", "{name}");
            match name {
                "id" => assert!(ids.insert(value.to_owned()), "id {value} twice"),
                "href" => assert!(value.starts_with('#'), "{value}"),
                "src" => {
                    let image = ["png", "jpeg"].iter().any(|f| value.starts_with(&format!("data:image/{f};base64,")));
                    assert!(image, "{value}");
                }
                _ => {}
            }
        }
        match node.tag_name().name() {
            "script" if node.attribute("type") == Some("application/json") => {
                let data: Result<serde_json::Value, _> = serde_json::from_str(node.text().expect("JSON"));
                assert!(data.is_ok());
                assert!(!node.text().is_some_and(|text| text.contains(['<', '>', '&'])));
            }
            "script" => {
                scripts += 1;
                let text = node.text().expect("a script");
                for word in ["http", "innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "</", "]]>"]
                {
                    assert!(!text.trim_end_matches("//").contains(word), "{word}");
                }
            }
            "style" => {
                let text = node.text().expect("a style");
                for word in ["http", "url(", "@import", "<", "&"] {
                    assert!(!text.contains(word), "{word}");
                }
            }
            "svg" if node.attribute("aria-hidden").is_none() => {
                assert_eq!(node.attribute("role"), Some("img"));
                assert!(node.attribute("aria-label").is_some_and(|alt| alt.len() > 20));
            }
            "link" | "iframe" | "object" | "embed" | "base" | "form" | "use" | "image" => {
                panic!("{:?}", node.tag_name())
            }
            _ => {}
        }
    }
    for link in page.descendants().filter_map(|node| node.attribute("href")) {
        assert!(ids.contains(&link[1..]), "{link} leads nowhere");
    }
    for used in page.descendants().filter_map(|node| node.attribute("data-copy")) {
        assert!(ids.contains(used), "{used} does not exist");
    }
    assert_eq!(scripts, 1);
    assert_eq!(page.descendants().filter(|node| node.has_tag_name("style")).count(), 1);
    assert_eq!(page.descendants().filter(|node| node.has_tag_name("h1")).count(), 1);
    assert_eq!(page.root_element().attribute("lang"), Some("en"));
    page
}

/// Elements with this class.
fn with<'a>(page: &'a Document<'_>, class: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    page.descendants().filter(move |node| node.attribute("class").is_some_and(|c| c.split(' ').any(|c| c == class)))
}

fn by_id<'a>(page: &'a Document<'_>, id: &str) -> Option<Node<'a, 'a>> {
    page.descendants().find(|node| node.attribute("id") == Some(id))
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
}

#[track_caller]
fn attribute(node: Node<'_, '_>, name: &str) -> f64 {
    let value = node.attribute(name).unwrap_or_else(|| panic!("no {name}"));
    value.parse().unwrap_or_else(|_| panic!("{name}={value}"))
}

#[track_caller]
fn near(got: f64, want: f64) {
    assert!((got - want).abs() < 1e-9, "{got}, not {want}");
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn sd(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64).sqrt()
}

#[test]
fn the_table_shows_the_results() {
    let root = folder("table");
    let runs = nine(&root);
    let html = page_of(&root);
    let page = read(&html);
    let table = by_id(&page, "c0-table").expect("the table");
    let cells: Vec<Node<'_, '_>> = table.descendants().filter(|node| node.attribute("data-column").is_some()).collect();
    assert_eq!(cells.len(), 3 * 4);
    let of = |run: &FakeRun, column: usize| {
        let metrics = run.result().last.expect("an evaluation").metrics;
        if column < 3 { metrics.groups[column].accuracy } else { metrics.top1 }.expect("a value")
    };
    for cell in cells {
        let (variant, column) = (attribute(cell, "data-variant") as usize, attribute(cell, "data-column") as usize);
        let values: Vec<f64> = runs[variant].iter().map(|run| of(run, column)).collect();
        near(attribute(cell, "data-mean"), mean(&values));
        near(attribute(cell, "data-sd"), sd(&values));
        near(attribute(cell, "data-seeds"), 3.0);
        let shown = text(cell);
        assert!(shown.starts_with(&format!("{:.1} ± {:.1}", mean(&values), sd(&values))), "{shown}");
        if variant > 0 {
            let apart: Vec<f64> = runs[0].iter().zip(&values).map(|(run, value)| value - of(run, column)).collect();
            near(attribute(cell, "data-difference"), mean(&apart));
            // Student's t for three pairs, and some more for the test images
            let half = attribute(cell, "data-half");
            assert!(half > 4.302_652_729_749_464 * sd(&apart) / 3f64.sqrt());
            assert_eq!(shown.contains("n.d."), mean(&apart).abs() <= half, "{shown}");
        }
    }
    let comparison = comparisons(&[root.to_path_buf()]).remove(0);
    let bold = table.descendants().filter(|node| node.has_tag_name("strong")).count();
    assert_eq!(bold, comparison.variants.iter().flat_map(|v| &v.cells).filter(|cell| cell.bold).count());
    assert!(bold > 0);
    let verdict = with(&page, "verdict").next().map(text).expect("a verdict");
    assert_eq!(verdict.replace('\u{a0}', " "), comparison.verdict().0.replace("(-", "(−"));
    assert_eq!(with(&page, "others").flat_map(|list| list.children()).count(), 1);
    assert!(text(table).contains("last epoch"));
    assert!(with(&page, "context").next().map(text).expect("a context").contains(
        "resnet8 · 12 epochs · 3 seeds · batch size 32 · bf16 · 1 warm-up epoch, learning rate × 0.01 from epoch 10 · cutout 16 · \
         Nesterov momentum · SAM 0.1"
    ));
}

#[test]
fn the_class_table_shows_the_results() {
    let root = folder("classes");
    let runs = nine(&root);
    let html = page_of(&root);
    let page = read(&html);
    let want = |variant: usize, class: usize| {
        let recall = |run: &FakeRun| run.metrics(run.epochs).per_class[class].hits as f64;
        mean(&runs[variant].iter().map(recall).collect::<Vec<_>>())
    };
    let columns: Vec<Node<'_, '_>> = with(&page, "col").filter(|node| node.attribute("data-class").is_some()).collect();
    // a wide chart and a narrow one
    assert_eq!(columns.len(), 2 * 10);
    for column in columns {
        let class = attribute(column, "data-class") as usize;
        near(attribute(column, "data-train"), runs[0][0].train(class) as f64);
        let means: Vec<f64> =
            column.attribute("data-means").expect("means").split(' ').map(|x| x.parse().expect("a number")).collect();
        for (variant, got) in means.iter().enumerate() {
            near(*got, want(variant, class));
        }
        assert!(column.attribute("data-tip").is_some_and(|tip| tip.starts_with(&format!("class {class}\n"))));
    }
    let rows: Vec<Node<'_, '_>> = by_id(&page, "c0-class-table")
        .expect("the table")
        .descendants()
        .filter(|node| node.attribute("data-class").is_some())
        .collect();
    assert_eq!(rows.len(), 10);
    for row in rows {
        let class = attribute(row, "data-class") as usize;
        let values: Vec<f64> = row.children().skip(2).map(|cell| attribute(cell, "data-value")).collect();
        let accuracies: Vec<f64> = (0..3).map(|variant| want(variant, class)).collect();
        let all = [runs[0][0].train(class) as f64, 100.0];
        let changes = [accuracies[1] - accuracies[0], accuracies[2] - accuracies[0]];
        for (got, want) in values.iter().zip(all.iter().chain(&accuracies).chain(&changes)) {
            near(*got, *want);
        }
        assert_eq!(values.len(), 7);
    }
}

#[test]
fn curves_start_and_end_where_the_records_do() {
    let root = folder("curves");
    let runs = nine(&root);
    let html = page_of(&root);
    let page = read(&html);
    let charts: Vec<Node<'_, '_>> = by_id(&page, "c0-curves")
        .expect("curves")
        .descendants()
        .filter(|node| node.has_tag_name("svg") && node.attribute("data-hover").is_some())
        .collect();
    // loss, overall, three groups, learning rate, speed
    assert_eq!(charts.len(), 7);
    let ends = |chart: usize, variant: usize| -> (f64, f64) {
        let run = &runs[variant];
        let of = |of: &dyn Fn(&FakeRun) -> f64| mean(&run.iter().map(of).collect::<Vec<_>>());
        match chart {
            0 => (of(&|run| run.epoch(1).loss), of(&|run| run.epoch(12).loss)),
            1 => (of(&|run| run.metrics(3).top1.expect("top 1")), of(&|run| run.metrics(12).top1.expect("top 1"))),
            2..5 => {
                let group = |epoch: u64| of(&|run| run.metrics(epoch).groups[chart - 2].accuracy.expect("a group"));
                (group(3), group(12))
            }
            5 => (0.1, 0.001),
            _ => (2001.0, 2012.0),
        }
    };
    for (at, chart) in charts.iter().enumerate() {
        let series: Vec<Node<'_, '_>> =
            chart.descendants().filter(|node| node.attribute("data-xs").is_some()).collect();
        assert_eq!(series.len(), 3);
        for (variant, series) in series.into_iter().enumerate() {
            let (first, last) = ends(at, variant);
            near(attribute(series, "data-first"), first);
            near(attribute(series, "data-last"), last);
            let epochs: Vec<&str> = series.attribute("data-xs").expect("epochs").split(' ').collect();
            let want = if (1..5).contains(&at) { vec!["3", "6", "9", "12"] } else { (1..=12).map(|_| "").collect() };
            assert_eq!(epochs.len(), want.len());
            assert_eq!(epochs.last(), Some(&"12"));
        }
    }
    // a learning rate that falls to a hundredth is on a logarithmic scale
    assert!(charts[5].descendants().any(|node| node.attribute("data-y").is_some_and(|y| y.starts_with("log "))));
    assert!(
        charts[5].attribute("aria-label").is_some_and(|alt| alt.contains("softmax: 0.1 at epoch 1, 0.001 at epoch 12"))
    );
}

#[test]
fn norms_and_details_are_those_of_the_records() {
    let root = folder("details");
    let runs = nine(&root);
    let html = page_of(&root);
    let page = read(&html);
    let norms_section = by_id(&page, "c0-norms").expect("norms");
    let panels: Vec<Node<'_, '_>> =
        norms_section.descendants().filter(|node| node.attribute("data-view").is_some()).collect();
    assert_eq!(panels.len(), 3 * 4);
    let cwap = &runs[2][0];
    assert_eq!(cwap.criterion, "cwap");
    let norms = cwap.norms(12);
    let margins: Vec<f64> = with(&page, "margins")
        .flat_map(|table| table.descendants())
        .filter(|node| node.attribute("data-value").is_some())
        .map(|cell| attribute(cell, "data-value"))
        .collect();
    assert_eq!(margins, norms.margins.concat());
    let data: serde_json::Value =
        serde_json::from_str(by_id(&page, "c0-norm-player-data").and_then(|node| node.text()).expect("data"))
            .expect("JSON");
    let frames = data["variants"][2].as_array().expect("frames");
    assert_eq!(frames.len(), 12);
    assert_eq!((&frames[0]["e"], &frames[11]["e"]), (&1.into(), &12.into()));
    let counts: Vec<u64> =
        frames[11]["views"][2]["c"].as_array().expect("counts").iter().filter_map(serde_json::Value::as_u64).collect();
    assert_eq!(counts, norms.views[2].counts);
    assert_eq!(frames[11]["views"][2]["v"][29], 43.5);
    assert!(frames[11]["views"][3].get("v").is_none());

    let confusion = by_id(&page, "c0-confusion").expect("confusion");
    let cells: Vec<Node<'_, '_>> =
        confusion.descendants().filter(|node| node.attribute("data-images").is_some()).collect();
    assert_eq!(cells.len(), 3 * 9);
    for cell in cells {
        let table = cell.ancestors().find(|node| node.has_tag_name("table")).expect("a table");
        let (row, column) = (attribute(cell, "data-row") as usize, attribute(cell, "data-column") as usize);
        let runs = &runs[attribute(table, "data-variant") as usize];
        let images = |column: usize| -> u64 { runs.iter().map(|run| run.details().confusion[row][column]).sum() };
        near(attribute(cell, "data-images"), images(column) as f64);
        let share = 100.0 * images(column) as f64 / (0..3).map(images).sum::<u64>() as f64;
        assert_eq!(text(cell), format!("{share:.1}"));
    }
    // |20 - 0.6 * 40| / 40; with the temperature |5 - 0.55 * 10| / 10
    let errors: Vec<f64> = with(&page, "dots").map(|dots| attribute(dots, "data-ece")).collect();
    let (before, after) = errors.split_at(errors.len() / 2);
    before.iter().for_each(|error| near(*error, 10.0));
    after.iter().for_each(|error| near(*error, 5.0));
    assert_eq!(errors.len(), 2 * 9, "three groups of three criteria");
    let hardest = by_id(&page, "c0-hardest").expect("the hardest");
    let pictures: Vec<&str> = hardest.descendants().filter_map(|node| node.attribute("src")).collect();
    // what is not base64 is not shown
    assert_eq!(pictures, vec![format!("data:image/png;base64,{}", common::PIXEL); 3]);
    assert_eq!(with(&page, "empty").count(), 3);
    let provenance = text(by_id(&page, "c0-provenance").expect("provenance"));
    assert_eq!(provenance.matches("equipoise train --config ").count(), 9);
    for word in
        ["9 commands", "criterion.method", "0.1.0 0301df1", "2,738", "47", "seed 0", "12 of 12", "method = \"cwap\""]
    {
        assert!(provenance.contains(word), "{word}");
    }
}

#[test]
fn a_single_run_and_two_classes() {
    let root = folder("single");
    FakeRun::new("cwap", 7, names(2), &[("Many", 1), ("Few", 1)]).write(&root, "it's; a \"run\"");
    let html = page_of(&root);
    let page = read(&html);
    assert_eq!(with(&page, "difference").count(), 0);
    assert_eq!(with(&page, "others").count(), 0);
    assert!(!text(page.root_element()).contains("Bonferroni"));
    let command = with(&page, "command").next().map(text).expect("a command");
    assert!(command.contains("'\\''s; a \"run\"/config.toml'"), "{command}");
    assert_eq!(with(&page, "col").filter(|node| node.attribute("data-class").is_some()).count(), 2 * 2);
}

#[test]
fn nothing_to_show() {
    let html = page(&[]);
    assert!(text(read(&html).root_element()).contains("There are no runs to show."));
}

#[test]
fn ten_thousand_classes_fit_in_five_megabytes() {
    let root = folder("many");
    let groups = [("Many", 1000), ("Medium", 3000), ("Few", 6000)];
    let mut all = Vec::new();
    for (at, criterion) in
        ["softmax", "seesaw", "cwap", "ldam", "ghm", "focal", "vs", "cdt", "equalization", "logit_adjusted"]
            .into_iter()
            .enumerate()
    {
        let mut run = FakeRun::new(criterion, 0, names(10_000), &groups);
        run.gain = 3 * at as u64;
        run.write(&root, criterion);
        all.push(run);
    }
    let html = page_of(&root);
    assert!(html.len() <= 5_000_000, "{} bytes", html.len());
    let page = read(&html);
    let rows = by_id(&page, "c0-class-table")
        .expect("the table")
        .descendants()
        .filter(|node| node.attribute("data-class").is_some())
        .count();
    assert_eq!(rows, 100);
    let data: serde_json::Value =
        serde_json::from_str(by_id(&page, "c0-class-table-data").and_then(|node| node.text()).expect("data"))
            .expect("JSON");
    assert_eq!(data["names"].as_array().map(Vec::len), Some(10_000));
    assert_eq!(data["names"][9_999], "class 9999");
    assert_eq!(data["group"][4_000], 2);
    assert_eq!(data["values"][0][77], all[0].metrics(12).per_class[77].hits);
    // columns of a wide chart and of a narrow one
    let bins = with(&page, "col").filter(|node| node.attribute("data-means").is_some()).count();
    assert!((60..=60 + 24).contains(&bins), "{bins}");
    assert!(text(page.root_element()).contains("10,000 classes in "));
}

/// Names that try to be markup, code or control sequences.
fn hostile() -> Vec<String> {
    let mut names: Vec<String> = [
        "</script><script>alert(1)</script>",
        "\" onmouseover=\"alert(1)",
        "' onfocus='alert(1)' autofocus='",
        "<img src=x onerror=alert(1)>",
        "&amp;",
        "&#60;b&#62;",
        "]]>",
        "<![CDATA[",
        "-->",
        "{{7*7}}",
        "two\nlines\r\n",
        "nul \0 bell \u{7} escape \u{1b}[31m",
        "not characters \u{fffe}\u{ffff}\u{85}",
        "\u{202e}backwards\u{2066}",
        "🦊👩‍🚀",
        "عربي",
        "=HYPERLINK(\"http://example.com\")",
        "http://example.com",
        "//example.com",
        "javascript:alert(1)",
        "</textarea></title></style>",
        "",
    ]
    .map(str::to_owned)
    .into();
    names.push("long ".repeat(60));
    names
}

#[test]
fn names_are_never_markup() {
    let elements = |html: &str| {
        let page = read(html);
        page.descendants().filter(Node::is_element).map(|node| node.tag_name().name().to_owned()).collect::<Vec<_>>()
    };
    let write = |test: &str, classes: Vec<String>, dataset: &str, groups: [&str; 2]| {
        let root = folder(test);
        let half = classes.len() / 2;
        let rest = classes.len() - half;
        for (criterion, gain) in [("softmax", 0), ("cwap", 40)] {
            for seed in 0..2 {
                let mut run = FakeRun::new(criterion, seed, classes.clone(), &[(groups[0], half), (groups[1], rest)]);
                run.gain = gain;
                dataset.clone_into(&mut run.dataset);
                run.write(&root, &format!("{criterion}-s{seed}"));
            }
        }
        page_of(&root)
    };
    let classes = hostile();
    let harmless = write("harmless", names(classes.len()), "a dataset", ["Many", "Few"]);
    let html = write("hostile", classes.clone(), "</title><script>alert(1)</script>", ["<b>Many</b>", "]]>&\"'"]);
    assert_eq!(elements(&html), elements(&harmless));
    // more classes than the table has rows for are embedded as JSON
    let more: Vec<String> = (0..12).flat_map(|copy| classes.iter().map(move |name| format!("{name}{copy}"))).collect();
    let harmless = write("harmless-more", names(more.len()), "a dataset", ["Many", "Few"]);
    let html = write("hostile-more", more, "<!--", ["</script>", "<svg onload=alert(1)>"]);
    assert_eq!(elements(&html), elements(&harmless));
    // every name is displayed as it is, except for characters that cannot be displayed
    let html = write("hostile-again", classes, "a dataset", ["Many", "Few"]);
    let page = read(&html);
    let shown: Vec<String> = page.descendants().filter(|node| node.has_tag_name("bdi")).map(text).collect();
    for name in [
        "</script><script>alert(1)</script>",
        "&amp;",
        "]]>",
        "two␊lines␍␊",
        "nul ␀ bell ␇ escape ␛[31m",
        "�backwards�",
        "عربي",
        "(no name)",
    ] {
        assert!(shown.iter().any(|text| text == name), "{name}");
    }
}

#[test]
fn runs_of_older_versions_have_fewer_sections() {
    let root = folder("older");
    let mut run = FakeRun::new("softmax", 0, names(5), &[("Many", 2), ("Few", 3)]);
    run.has_details = false;
    run.write(&root, "run");
    let html = page_of(&root);
    let page = read(&html);
    for section in ["result", "classes", "curves", "provenance"] {
        assert!(by_id(&page, &format!("c0-{section}")).is_some(), "{section}");
    }
    for section in ["norms", "confusion", "hardest"] {
        assert!(by_id(&page, &format!("c0-{section}")).is_none(), "{section}");
    }
    assert!(!text(by_id(&page, "c0-curves").expect("curves")).contains("Speed"));
}

#[test]
fn a_run_that_has_not_finished() {
    let root = folder("unfinished");
    let mut run = FakeRun::new("cwap", 0, names(5), &[("Many", 2), ("Few", 3)]);
    run.done = 7;
    run.write(&root, "half");
    let html = page_of(&root);
    let page = read(&html);
    assert_eq!(with(&page, "note").next().map(text).as_deref(), Some("half has not finished: epoch 7 of 12."));
    let all = text(page.root_element());
    assert!(all.contains("latest evaluation") && all.contains("not finished"));
    let cell = page.descendants().find(|node| node.attribute("data-column") == Some("2")).expect("overall");
    near(attribute(cell, "data-mean"), run.metrics(6).top1.expect("top 1"));
}

/// A run that has not finished is not compared with one that has, but named with its progress.
#[test]
fn an_unfinished_run_beside_a_finished_one() {
    let root = folder("beside");
    FakeRun::new("softmax", 0, names(5), &[("Many", 2), ("Few", 3)]).write(&root, "softmax-s0");
    let mut run = FakeRun::new("cwap", 0, names(5), &[("Many", 2), ("Few", 3)]);
    run.done = 7;
    run.write(&root, "cwap-s0");
    let html = page_of(&root);
    let page = read(&html);
    let verdict = with(&page, "verdict").next().map(text).expect("a verdict");
    assert!(verdict.starts_with("softmax reaches") && !verdict.contains("cwap"), "{verdict}");
    let want = "Left out because they have not finished: cwap-s0 (epoch 7 of 12).";
    assert_eq!(with(&page, "note").next().map(text).as_deref(), Some(want));
}

/// A single group of all classes is not shown beside the columns about all of them.
#[test]
fn one_group_has_no_column() {
    let root = folder("equal");
    for criterion in ["softmax", "cwap"] {
        FakeRun::new(criterion, 0, names(4), &[("All", 4)]).write(&root, criterion);
    }
    let html = page_of(&root);
    let page = read(&html);
    let table = by_id(&page, "c0-table").expect("a table");
    let heads: Vec<String> =
        table.descendants().filter(|node| node.attribute("scope") == Some("col")).map(text).collect();
    assert!(heads.iter().any(|head| head.starts_with("overall")), "{heads:?}");
    assert!(!heads.iter().any(|head| head.starts_with("All")), "{heads:?}");
    assert!(!html.contains("Accuracy on All") && !html.contains("Between groups"));
}

#[test]
fn two_datasets_and_epochs_selected_on_the_test_set() {
    let root = folder("two");
    for criterion in ["softmax", "cwap"] {
        for (dataset, classes) in [("pets", 2), ("birds", 30)] {
            let mut run = FakeRun::new(criterion, 0, names(classes), &[("Many", 1), ("Few", classes - 1)]);
            run.chosen_on_test = dataset == "birds";
            dataset.clone_into(&mut run.dataset);
            run.write(&root, &format!("{dataset}-{criterion}"));
        }
    }
    let html = page_of(&root);
    let page = read(&html);
    assert_eq!(page.descendants().filter(|node| node.has_tag_name("article")).count(), 2);
    assert_eq!(
        with(&page, "contents").flat_map(|nav| nav.descendants()).filter(|node| node.has_tag_name("a")).count(),
        2
    );
    let (with_best, without) =
        if text(by_id(&page, "c0").expect("an article")).starts_with("birds") { ("c0", "c1") } else { ("c1", "c0") };
    let optimistic = by_id(&page, &format!("{with_best}-optimistic")).expect("a second table");
    assert!(by_id(&page, &format!("{without}-optimistic")).is_none());
    assert!(text(optimistic).contains("best epoch on the test set (optimistic)"));
    let mut run = FakeRun::new("softmax", 0, names(30), &[("Many", 1), ("Few", 29)]);
    run.chosen_on_test = true;
    let cell = optimistic.descendants().find(|node| node.attribute("data-column") == Some("2")).expect("overall");
    near(attribute(cell, "data-mean"), run.metrics(9).top1.expect("top 1"));
}

#[test]
fn runs_that_differ_in_a_parameter() {
    let root = folder("parameter");
    for (name, params) in [("a", "alpha = 0.5"), ("b", "alpha = 0.9")] {
        let mut run = FakeRun::new("cwap", 0, names(4), &[("Many", 2), ("Few", 2)]);
        run.params = params;
        run.write(&root, name);
    }
    let html = page_of(&root);
    let page = read(&html);
    let labels: Vec<String> =
        page.descendants().filter(|node| node.attribute("data-highlight").is_some()).map(text).collect();
    assert_eq!(labels[..2], ["cwap, alpha 0.5", "cwap, alpha 0.9"]);
    let settings = with(&page, "settings").next().map(text).expect("settings that differ");
    assert!(settings.contains("criterion.params.alpha0.50.9"), "{settings}");
}

/// Records from elsewhere may have any shape.
#[test]
fn records_that_do_not_fit() {
    let root = folder("ragged");
    let run = FakeRun::new("cwap", 0, names(4), &[("Many", 2), ("Few", 2)]);
    let path = run.write(&root, "run");
    let mut norms = run.norms(1);
    norms.views[0].counts.clear();
    norms.views[0].weights.clear();
    norms.views[1].class = Some(99);
    norms.views[1].weights.truncate(3);
    if let Some(regions) = &mut norms.views[2].regions {
        regions.widths.truncate(2);
        regions.weights = vec![0.0, f64::MAX];
        regions.densities.clear();
    }
    norms.margins = vec![vec![], vec![1e308], vec![0.0; 9], vec![]];
    std::fs::write(path.join("norms.jsonl"), serde_json::to_string(&norms).expect("JSON") + "\n").expect("written");
    let mut details = run.details();
    details.confusion = vec![vec![u64::MAX, u64::MAX]];
    details.confused[0].class = 1000;
    details.reliability.truncate(1);
    details.hardest[0].predicted = 1000;
    std::fs::write(path.join("details.json"), serde_json::to_string(&details).expect("JSON")).expect("written");
    let html = page_of(&root);
    let page = read(&html);
    assert!(by_id(&page, "c0-norms").is_some() && by_id(&page, "c0-confusion").is_some());
    assert!(!html.contains("NaN") || !text(page.root_element()).contains("NaN"));
}

#[test]
fn probabilities_before_and_after_calibration() {
    let root = folder("calibrated");
    nine(&root);
    let html = page_of(&root);
    let page = read(&html);
    let rows: Vec<Vec<String>> = with(&page, "calibration-table")
        .flat_map(|table| table.descendants().filter(|node| node.has_tag_name("tr")))
        .map(|row| row.children().filter(|cell| cell.has_tag_name("td")).map(text).collect())
        .collect();
    // temperature; cross-entropy of images and of classes, and calibration error, before and after
    let want = ["1.625", "1.750", "1.125", "2.250", "1.625", "30.0", "5.0"];
    assert_eq!(rows.len(), 4, "a head and three criteria");
    assert!(rows[1..].iter().all(|row| row == &want), "{rows:?}");
    assert!(html.contains("Every class before and after"));
}

#[test]
fn the_trade_off_is_that_of_the_records() {
    let root = folder("trade-off");
    nine(&root);
    let html = page_of(&root);
    let page = read(&html);
    let table = by_id(&page, "c0-trade-off-table").expect("the table");
    let rows: Vec<Vec<String>> = table
        .descendants()
        .filter(|node| node.has_tag_name("tr"))
        .map(|row| row.children().filter(|cell| cell.has_tag_name("td")).map(text).collect())
        .collect();
    assert_eq!(rows.len(), 10, "a head, and three strengths of three criteria");
    // the first group loses what the last one gains
    assert_eq!(rows[3], ["1", "50.0", "60.0", "70.0", "61.3", "62.5"]);
    assert_eq!(with(&page, "trade-off").count(), 3, "the first group, the last one, and all classes");
}

#[test]
fn sets_and_rejections_are_those_of_the_records() {
    let root = folder("decisions");
    nine(&root);
    let html = page_of(&root);
    let page = read(&html);
    let rows: Vec<Vec<String>> = with(&page, "decisions-table")
        .flat_map(|table| table.descendants().filter(|node| node.has_tag_name("tr")))
        .map(|row| row.children().filter(|cell| cell.has_tag_name("td")).map(text).collect())
        .collect();
    assert_eq!(rows.len(), 10, "a head, and three groups of three criteria");
    // 9 of 10 sets hold the class, 1.5 classes each; 1 of 8 right and 1 of 2 wrong answers rejected; 7 of 8 that are left are right
    assert!(rows[1..].iter().all(|row| row[1..] == ["90.0", "1.50", "12.5", "50.0", "87.5"]), "{rows:?}");
    assert_eq!(with(&page, "decisions").count(), 2, "a chart for sets, one for rejections");
}
