//! The questions in the syntax of both tools, and the fields of a flow that each tool reads.

use weir_tests::truth::Key;

/// A question to both tools.
#[derive(Debug, PartialEq)]
pub struct Question {
    /// The name in reports; for flowsketch's examples it is the example's name.
    pub name: &'static str,
    /// The flows that the question is about.
    pub only: Only,
    /// The fields that make a row.
    pub by: &'static [Field],
    /// The number that each row has.
    pub measure: Measure,
    /// The most rows.
    pub rows: usize,
    /// The error that is configured in weir, if the default one makes bounds wider than those of flowsketch.
    pub error: Option<f64>,
}

/// The flows that a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    All,
    /// TCP to the ports that flowsketch's example watches.
    Watched,
}

/// A field, as weir and flowsketch call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Src,
    Dst,
    SrcPort,
    DstPort,
    Proto,
}

/// The number that a question asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The largest rows, by bytes or packets.
    Largest(Amount),
    /// The sum over all rows.
    Sum(Amount),
    /// Different values.
    Distinct(Field),
    /// The size of packets that 99 % do not exceed.
    Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Bytes,
    Packets,
}

/// All questions, flowsketch's examples first.
pub static QUESTIONS: [Question; 12] = [
    Question::largest("top_talkers", &[Field::Src, Field::Dst], Amount::Bytes),
    Question { only: Only::Watched, ..Question::spread("suspected_scanners", Field::Dst) },
    Question::sum("protocol_bytes", Amount::Bytes),
    Question { name: "packet_size_p99", only: Only::All, by: &[], measure: Measure::Size, rows: 1, error: None },
    Question::largest("top_sources", &[Field::Src], Amount::Bytes),
    Question { error: Some(0.0002), ..Question::largest("top_sources_by_packets", &[Field::Src], Amount::Packets) },
    Question::largest("top_destinations", &[Field::Dst], Amount::Bytes),
    Question::largest("top_servers", &[Field::Dst, Field::DstPort, Field::Proto], Amount::Bytes),
    Question::largest(
        "top_flows",
        &[Field::Src, Field::Dst, Field::SrcPort, Field::DstPort, Field::Proto],
        Amount::Bytes,
    ),
    Question::sum("protocol_packets", Amount::Packets),
    Question::spread("destinations_of_sources", Field::Dst),
    Question::spread("ports_of_sources", Field::SrcPort),
];

const WATCHED: [u16; 5] = [22, 80, 443, 5432, 6379];

impl Question {
    /// How many of the first are flowsketch's examples.
    pub const EXAMPLES: usize = 4;

    const fn largest(name: &'static str, by: &'static [Field], amount: Amount) -> Self {
        Self { name, only: Only::All, by, measure: Measure::Largest(amount), rows: 100, error: None }
    }

    const fn sum(name: &'static str, amount: Amount) -> Self {
        Self { name, only: Only::All, by: &[Field::Proto], measure: Measure::Sum(amount), rows: 32, error: None }
    }

    /// Sources with many different values.
    const fn spread(name: &'static str, of: Field) -> Self {
        Self { name, only: Only::All, by: &[Field::Src], measure: Measure::Distinct(of), rows: 40, error: None }
    }

    /// The view in weir's configuration; `None` for sizes of packets, which are in every report. `error` replaces the
    /// question's own error of the largest.
    pub fn view(&self, error: Option<f64>) -> Option<String> {
        let Self { name, only, by, measure, rows, error: own } = self;
        let measure = match (measure, error.or(*own)) {
            (Measure::Largest(amount), Some(error)) => format!("{}, error: {error}", amount.name()),
            (Measure::Largest(amount) | Measure::Sum(amount), _) => amount.name().to_owned(),
            (Measure::Distinct(of), _) => format!("{{distinct: {}}}", of.weir()),
            (Measure::Size, _) => return None,
        };
        let by: Vec<_> = by.iter().map(|field| field.weir()).collect();
        let only = match only {
            Only::All => String::new(),
            Only::Watched => format!("match: {{proto: tcp, dst_port: {WATCHED:?}}}, "),
        };
        Some(format!("{{name: {name}, {only}by: [{}], measure: {measure}, top: {rows}}}", by.join(", ")))
    }

    /// The query of flowsketch, with the errors that its examples ask for.
    pub fn query(&self) -> String {
        let Self { name, only, by, measure, rows, error: _ } = self;
        let mut text = format!("name: {name}\nwindow: {{size: 60s}}\n");
        if *only == Only::Watched {
            text += &format!("match: {{protocol: tcp, dst.port: {WATCHED:?}}}\n");
        }
        if !by.is_empty() {
            let by: Vec<_> = by.iter().map(|field| field.flowsketch()).collect();
            text += &format!("groupBy: [{}]\n", by.join(", "));
        }
        text + &match measure {
            Measure::Largest(amount) => format!(
                "measure: {{type: heavy_hitters, value: {}, limit: {rows}}}\nexport: {{maxSeries: {rows}}}\n",
                amount.name()
            ),
            Measure::Sum(amount) => {
                format!("measure: {{type: sum, value: {}}}\nexport: {{maxSeries: {rows}}}\n", amount.name())
            }
            Measure::Distinct(of) => format!(
                "measure: {{type: distinct_count, field: {}, error: {{epsilon: 0.02}}}}\nalertIf: {{gt: 500}}\n\
                 export: {{maxSeries: 500}}\nresources: {{maxMemory: 64MiB}}\n",
                of.flowsketch()
            ),
            Measure::Size => "measure: {type: quantile, field: bytes, q: 0.99, error: {epsilon: 0.01}}\n\
                              export: {maxSeries: 1}\n"
                .to_owned(),
        }
    }

    /// Returns true if it asks for the largest.
    pub const fn is_about_largest(&self) -> bool {
        matches!(self.measure, Measure::Largest(_))
    }

    /// The field of a row of weir that has the answer; sizes have no rows.
    pub const fn counted(&self) -> Option<&'static str> {
        match self.measure {
            Measure::Largest(amount) | Measure::Sum(amount) => Some(amount.name()),
            Measure::Distinct(_) => Some("distinct"),
            Measure::Size => None,
        }
    }

    /// Returns true if it asks for a flow.
    pub fn asks_for(&self, flow: &Key) -> bool {
        self.only == Only::All || flow.proto == 6 && WATCHED.contains(&flow.dst_port)
    }

    /// The row of a flow.
    pub fn key(&self, flow: &Key) -> String {
        let texts: Vec<_> = self.by.iter().map(|field| field.of(flow)).collect();
        texts.join(" ")
    }
}

impl Field {
    /// Returns the name in weir's configuration.
    pub const fn weir(self) -> &'static str {
        match self {
            Self::Src => "src_ip",
            Self::Dst => "dst_ip",
            Self::SrcPort => "src_port",
            Self::DstPort => "dst_port",
            Self::Proto => "proto",
        }
    }

    const fn flowsketch(self) -> &'static str {
        match self {
            Self::Src => "src.ip",
            Self::Dst => "dst.ip",
            Self::SrcPort => "src.port",
            Self::DstPort => "dst.port",
            Self::Proto => "protocol",
        }
    }

    /// Returns the value of the field in a flow.
    pub fn of(self, flow: &Key) -> String {
        match self {
            Self::Src => flow.src.to_string(),
            Self::Dst => flow.dst.to_string(),
            Self::SrcPort => flow.src_port.to_string(),
            Self::DstPort => flow.dst_port.to_string(),
            Self::Proto => flow.proto.to_string(),
        }
    }
}

impl Amount {
    const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Packets => "packets",
        }
    }
}
