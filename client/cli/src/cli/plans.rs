//! `forebay plans ls | rm`: the fitted plans stored on a server.

use std::time::{SystemTime, UNIX_EPOCH};

use chrono::DateTime;
use clap::{Args, Subcommand};
use forebay_client::StoredPlan;

use super::{
    failure::Failure,
    output::{self, Align},
    session::Session,
};

/// Datasets of a plan that the text lists; --json lists all.
const DATASETS_SHOWN: usize = 3;

const DAY_SECONDS: u64 = 86_400;

/// List and remove the plans stored on the server (--state)
#[derive(Debug, Args)]
pub(crate) struct Plans {
    #[command(subcommand)]
    verb: PlansVerb,
}

#[derive(Debug, Subcommand)]
enum PlansVerb {
    /// List the stored plans that you may see, those used last first: id, datasets, size, times in UTC
    Ls,
    Rm(Rm),
}

/// Remove stored plans. Open streams continue; new ones that name the id are refused until the plan is fitted again
#[derive(Debug, Args)]
struct Rm {
    /// Ids of stored plans, or their first characters as far as they are unique
    #[arg(value_name = "PLAN_ID", required_unless_present = "unused_days")]
    plan_ids: Vec<String>,

    /// Remove all stored plans that you may see and that were not used for this many days
    #[arg(long, env = "FOREBAY_UNUSED_DAYS", value_name = "DAYS", conflicts_with = "plan_ids",
          value_parser = clap::value_parser!(u64).range(1..=36_500))]
    unused_days: Option<u64>,
}

impl Plans {
    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        match self.verb {
            PlansVerb::Ls => {
                let plans = session.client.plans().await?;
                output::write(&if session.json { json(&plans) } else { text(&plans) })
            }
            PlansVerb::Rm(verb) => verb.run(session).await,
        }
    }
}

impl Rm {
    async fn run(self, session: &Session) -> Result<(), Failure> {
        let plans = session.client.plans().await?;
        let ids: Vec<&str> = plans.iter().map(|plan| plan.plan_id.as_str()).collect();
        let removed: Vec<&str> = match self.unused_days {
            Some(days) => unused(&plans, now(), days),
            // Nothing is removed if one of the ids is ambiguous.
            None => self.plan_ids.iter().map(|id| whole_id(id, &ids)).collect::<Result<_, Failure>>()?,
        };
        for id in removed {
            let removed = session.client.remove_plan(id).await?;
            let line = if session.json { forebay_proto::to_json(&removed) } else { format!("removed {id}") };
            output::write(&(line + "\n"))?;
        }
        Ok(())
    }
}

/// Returns the time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the ids of plans that were not used for these days; for a plan without a time, it is not known.
fn unused(plans: &[StoredPlan], now: u64, days: u64) -> Vec<&str> {
    let is_unused = |plan: &&StoredPlan| plan.used > 0 && plan.used.saturating_add(days * DAY_SECONDS) < now;
    plans.iter().filter(is_unused).map(|plan| plan.plan_id.as_str()).collect()
}

/// Returns the only id that starts with a text; the text itself if none does, which the server refuses with near ids.
fn whole_id<'a>(text: &'a str, ids: &[&'a str]) -> Result<&'a str, Failure> {
    if ids.contains(&text) {
        return Ok(text);
    }
    let found: Vec<&str> = ids.iter().filter(|id| !text.is_empty() && id.starts_with(text)).copied().collect();
    match found[..] {
        [] => Ok(text),
        [id] => Ok(id),
        _ => Err(Failure::Usage(format!("plan id {text:?} is ambiguous: {} start with it", found.join(", ")))),
    }
}

fn json(plans: &[StoredPlan]) -> String {
    let plans: Vec<String> = plans.iter().map(forebay_proto::to_json).collect();
    format!("[{}]\n", plans.join(",\n "))
}

fn text(plans: &[StoredPlan]) -> String {
    use Align::{Left, Right};
    let names = ["PLAN", "DATASETS", "ROWS", "SIZE", "CREATED", "LAST USED"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = [names].into_iter().chain(plans.iter().map(row)).collect();
    output::columns(&[Left, Left, Right, Right, Left, Left], &rows)
}

fn row(plan: &StoredPlan) -> Vec<String> {
    let listed = |cell: fn(&forebay_client::PlanDataset) -> String| {
        let cells: Vec<String> = plan.datasets.iter().take(DATASETS_SHOWN).map(cell).collect();
        let more = if plan.datasets.len() > DATASETS_SHOWN { ", …" } else { "" };
        if cells.is_empty() { UNKNOWN.to_owned() } else { cells.join(", ") + more }
    };
    vec![
        plan.plan_id.clone(),
        listed(|dataset| dataset.name.clone()),
        listed(|dataset| dataset.rows.to_string()),
        output::bytes(plan.bytes),
        time(plan.created),
        time(plan.used),
    ]
}

/// What earlier versions of the server did not record.
const UNKNOWN: &str = "–";

/// Formats a time in UTC, to a minute; the server counts uses no finer.
fn time(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    let time = time.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    time.map_or(UNKNOWN.to_owned(), |time| time.format("%Y-%m-%d %H:%M").to_string())
}

#[cfg(test)]
mod tests {
    use forebay_client::PlanDataset;

    use super::*;

    #[test]
    fn lists_plans_with_known_and_unknown_datasets() {
        let dataset = |name: &str, rows| PlanDataset { name: name.into(), rows, fitted: true, ..Default::default() };
        let plans = [
            StoredPlan {
                plan_id: "7a91".into(),
                datasets: vec![dataset("flights", 336_776)],
                bytes: 1536,
                created: 1_795_300_000,
                used: 1_795_386_400,
            },
            StoredPlan {
                plan_id: "b2".into(),
                datasets: (0..4).map(|number| dataset(&format!("d{number}"), number)).collect(),
                bytes: 12,
                ..Default::default()
            },
            StoredPlan { plan_id: "c3".into(), bytes: 1 << 20, ..Default::default() },
        ];
        assert_eq!(
            text(&plans),
            "PLAN  DATASETS             ROWS     SIZE  CREATED           LAST USED\n\
             7a91  flights            336776  1.5 KiB  2026-11-21 22:26  2026-11-22 22:26\n\
             b2    d0, d1, d2, …  0, 1, 2, …     12 B  –                 –\n\
             c3    –                       –  1.0 MiB  –                 –\n"
        );
        let parsed: serde_json::Value = serde_json::from_str(&json(&plans)).unwrap();
        assert_eq!((&parsed[0]["plan_id"], &parsed[2]["datasets"]), (&"7a91".into(), &serde_json::json!([])));
        assert_eq!(json(&[]), "[]\n");
    }

    #[test]
    fn removes_by_the_last_use() {
        let plan = |id: &str, used| StoredPlan { plan_id: id.into(), used, ..Default::default() };
        let now = 100 * DAY_SECONDS;
        let plans = [plan("a", now), plan("b", now - 2 * DAY_SECONDS), plan("c", now - 9 * DAY_SECONDS), plan("d", 0)];
        assert_eq!(unused(&plans, now, 2), ["c"]);
        assert_eq!(unused(&plans, now, 1), ["b", "c"]);
        assert_eq!(unused(&plans, now, 36_500), [""; 0]);
    }

    #[test]
    fn completes_unique_prefixes_only() {
        let ids = ["7a91", "7a92", "7a"];
        assert_eq!(whole_id("7a91", &ids).unwrap(), "7a91");
        assert_eq!(whole_id("7a", &ids).unwrap(), "7a");
        assert_eq!(whole_id("7a92", &ids[..2]).unwrap(), "7a92");
        assert_eq!((whole_id("ff", &ids).unwrap(), whole_id("", &ids).unwrap()), ("ff", ""));
        let ambiguous = whole_id("7", &ids[..2]).unwrap_err().to_string();
        assert_eq!(ambiguous, "plan id \"7\" is ambiguous: 7a91, 7a92 start with it");
    }
}
