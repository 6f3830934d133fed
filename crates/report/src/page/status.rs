//! What a page says about runs that have not finished: they are under way, or they have ended early.

use crate::escape::{escape, label, put};

/// Whether the runs of a page are still being trained.
#[derive(Clone, Debug, PartialEq)]
pub enum PageStatus {
    /// A process trains, and writes the page again and again.
    UnderWay(LiveStatus),
    /// Training has ended before the end of a run.
    Ended {
        /// What has happened, as a sentence.
        what: String,
        /// The command that continues, if there is one.
        resume: Option<String>,
    },
}

/// A page that is written again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveStatus {
    /// Seconds after which the page reloads itself.
    pub reload: u64,
    /// When the page was written, in seconds since 1970.
    pub written: u64,
    /// Seconds without a new page after which the process has probably been killed.
    pub patience: u64,
    /// The command that continues if it was, if there is one.
    pub resume: Option<String>,
}

impl PageStatus {
    /// Markup of the page's head: without a script, the browser reloads a page that is under way.
    pub(super) fn head(&self) -> String {
        match self {
            Self::UnderWay(LiveStatus { reload, .. }) => {
                format!("<noscript><meta http-equiv=\"refresh\" content=\"{reload}\"/></noscript>\n")
            }
            Self::Ended { .. } => String::new(),
        }
    }

    /// The notice above everything else.
    pub(super) fn notice(&self) -> String {
        let continued = |resume: &Option<String>| match resume {
            Some(command) => format!(" To continue: <code>{}</code>.", escape(&label(command))),
            None => String::new(),
        };
        let mut html = r#"<p class="note live" role="status""#.to_owned();
        match self {
            Self::UnderWay(LiveStatus { reload, written, patience, resume }) => {
                put!(
                    html,
                    r#" id="live" data-reload="{reload}" data-written="{written}" data-patience="{patience}"><span><strong>Training is under way.</strong> This page reloads itself every {reload} seconds.</span><span id="stale" hidden="hidden"><strong>No update since <span id="last-update"></span>.</strong> The process may have been killed, or an epoch takes long; this page no longer reloads itself.{}</span>"#,
                    continued(resume)
                );
            }
            Self::Ended { what, resume } => {
                put!(html, "><strong>{}</strong>{}", escape(&label(what)), continued(resume));
            }
        }
        html + "</p>\n"
    }
}
