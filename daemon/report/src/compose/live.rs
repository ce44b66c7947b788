//! Makes the lists of the open window, and answers about it, before its report.

use jiff::Timestamp;
use weir_datapath::interface::MeasuredInterface;
use weir_measure::{
    open::{OpenSummary, is_readable},
    question::{KeyQuery, Views},
};
use weir_schema::{LIVE_SCHEMA, Live, LiveAnswers, OpenWindow, Unique};

use super::{distinct, list, new_flows, rows, totals};

/// The lists of an open window.
pub fn live(
    (time, window): (Timestamp, OpenWindow),
    plan: &Views,
    open: &OpenSummary,
    interfaces: &[MeasuredInterface],
) -> Live {
    let OpenSummary { sampling, confidence, uncertainty, views: answers, .. } = open;
    let list = |by| list(plan, answers, by, *sampling, *confidence);
    let readable = plan.in_views().filter(|(_, question)| is_readable(question));
    let answered = readable.filter_map(|(nth, question)| Some((question, answers.get(nth)?)));
    let not_yet = plan.questions.iter().filter(|question| !is_readable(question));
    Live {
        schema: LIVE_SCHEMA.to_owned(),
        time,
        window,
        addresses: None,
        totals: totals(open.fed, open.protocols, uncertainty.is_some().then_some(*confidence)),
        unique: Unique {
            src_ip: distinct(open.sources),
            dst_ip: distinct(open.destinations),
            flows: distinct(open.flows),
        },
        new_flows: new_flows(&open.new_flows),
        top: list("bytes"),
        top_by_packets: list("packets"),
        views: answered.map(|(question, answer)| rows::view(plan, question, answer, interfaces)).collect(),
        not_yet: not_yet.map(|question| question.view.name.clone()).collect(),
    }
}

/// The answers to these questions from the numbers of the workers.
pub fn live_answers(
    (time, window): (Timestamp, OpenWindow),
    plan: &Views,
    open: &OpenSummary,
    asks: &[KeyQuery],
    interfaces: &[MeasuredInterface],
) -> LiveAnswers {
    let found = open.look_up(plan, asks, interfaces);
    LiveAnswers { time, window, answers: rows::answers(plan, &found, interfaces) }
}
