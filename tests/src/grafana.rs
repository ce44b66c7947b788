//! The dashboards of `config/grafana/`: the queries of their panels and variables.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A dashboard as Grafana stores it.
#[derive(Debug)]
pub struct Dashboard(Value);

/// A query of a panel.
#[derive(Debug)]
pub struct Query {
    /// The title of the panel, and the letter of the query.
    pub of: String,
    /// The text of the query, with Grafana's variables.
    pub text: String,
    /// The columns that Grafana takes for times.
    pub times: Vec<String>,
    /// True if each text in a row makes a separate line.
    pub is_series: bool,
}

impl Dashboard {
    /// Reads a dashboard, and checks what Grafana needs to import it.
    ///
    /// # Errors
    ///
    /// There is no file with this name, or it is not a dashboard.
    pub fn read(name: &str) -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/grafana").join(name);
        let board: Value = serde_json::from_str(&fs::read_to_string(&path)?).with_context(|| name.to_owned())?;
        let panels = board["panels"].as_array().context("no panels")?;
        let mut ids: Vec<_> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
        ids.dedup();
        ensure!(ids.len() == panels.len(), "each panel has an id of its own");
        for (nth, panel) in panels.iter().enumerate() {
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64());
            ensure!(x.zip(w).is_some_and(|(x, w)| x + w <= 24) && h > Some(0), "{}: no place", panel["title"]);
            let before = nth.checked_sub(1).map(|before| &panels[before]["gridPos"]);
            let after = |of: &Value| of["y"].as_u64() < y || (of["y"].as_u64() == y && of["x"].as_u64() < x);
            ensure!(before.is_none_or(after), "{}: above the one before", panel["title"]);
        }
        ensure!(board["uid"].is_string() && board["title"].is_string() && board.get("id").is_none());
        Ok(Self(board))
    }

    /// All queries of its panels.
    ///
    /// # Errors
    ///
    /// A panel that is not a heading has no query.
    pub fn queries(&self) -> Result<Vec<Query>> {
        let mut queries = Vec::new();
        for panel in self.0["panels"].as_array().into_iter().flatten().filter(|panel| panel["type"] != "row") {
            let title = panel["title"].as_str().context("no title")?;
            let targets = panel["targets"].as_array().filter(|targets| !targets.is_empty());
            for target in targets.with_context(|| format!("{title} asks nothing"))? {
                let text = target["expr"].as_str().or(target["rawQueryText"].as_str());
                let times = target["timeColumns"].as_array().into_iter().flatten();
                queries.push(Query {
                    of: format!("{title} {}", target["refId"].as_str().context("no letter")?),
                    text: text.context("no text")?.to_owned(),
                    times: times.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
                    is_series: target["queryType"] == "time series",
                });
            }
        }
        Ok(queries)
    }

    /// The queries of its variables, by their names.
    pub fn variables(&self) -> Vec<(String, String)> {
        let all = self.0["templating"]["list"].as_array().into_iter().flatten();
        let asked = all.filter(|variable| variable["type"] == "query");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        asked.map(|variable| (text(&variable["name"]), text(&variable["definition"]))).collect()
    }
}
