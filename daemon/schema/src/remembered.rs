//! The lists of a window as the history keeps them, which are longer than those of its report.

use crate::{FlowSample, Report, Sketches, Top, View};

/// The longer lists of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembered {
    /// The largest talkers by bytes.
    pub top: Top,
    /// The largest talkers by packets.
    pub top_by_packets: Top,
    /// The views that can be added up.
    pub views: Vec<View>,
    /// Small sketches of its distinct counts. Those of sinks are in its report.
    pub sketches: Sketches,
    /// A sample of its flow records, if the history keeps one.
    pub sample: Option<Box<FlowSample>>,
}

impl Remembered {
    /// The registers of its sketches, as a power of two: their standard error is 2.3 %.
    pub const LG_K: u32 = 11;

    /// The report with these lists, if there are any, instead of its own.
    pub fn report(longer: Option<Self>, report: &Report) -> Report {
        let Some(Self { top, top_by_packets, views: mut longer, sketches, sample }) = longer else {
            return report.clone();
        };
        let of_report = |longer: Top, shorter: &Top| Top {
            source_prefixes: shorter.source_prefixes.clone(),
            destination_prefixes: shorter.destination_prefixes.clone(),
            ..longer
        };
        let views = report.views.iter().map(|view| {
            let is_same = |longer: &View| longer.name == view.name && longer.question == view.question;
            longer.iter().position(is_same).map_or_else(|| view.clone(), |nth| longer.swap_remove(nth))
        });
        let views = views.collect();
        Report {
            top: of_report(top, &report.top),
            top_by_packets: of_report(top_by_packets, &report.top_by_packets),
            views,
            sketches: Some(Box::new(sketches)),
            sample,
            ..report.clone()
        }
    }
}
