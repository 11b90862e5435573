//! The page around the figures.

use std::fmt::Write;

use super::svg::escape;
use super::{Colour, Figure};

/// Numbers in rows and columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Column headings.
    pub headings: Vec<String>,
    /// Cells as they are shown; the first of a row is its name.
    pub rows: Vec<Vec<String>>,
}

/// A heading, what to see, figures, and the numbers.
pub struct Section {
    /// Heading.
    pub heading: String,
    /// A sentence or two: what was measured and what it shows.
    pub text: String,
    /// Colours and what they stand for.
    pub legend: Vec<(Colour, String)>,
    /// The figures, each with a caption.
    pub figures: Vec<(String, Box<dyn Figure>)>,
    /// The same numbers.
    pub table: Option<Table>,
}

/// A whole report.
pub struct Page {
    /// Title.
    pub title: String,
    /// Host, version and date: what was run where.
    pub subtitle: String,
    /// Verdicts: name, and whether it holds.
    pub verdicts: Vec<(String, bool)>,
    /// The sections, in order.
    pub sections: Vec<Section>,
}

const STYLE: &str = "\
:root{--ink:#1d2329;--soft:#5b6670;--line:#e3e7ea;--paper:#fff;--card:#f7f8f9;--published:#b4bcc4;\
--s0:#2166ac;--s1:#d6604d;--s2:#2a8c82;--s3:#9467bd;--s4:#c49a1a;--s5:#5d6d7e;--good:#1a7f4b;--bad:#b3261e}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa5af;--line:#333a41;--paper:#15191d;--card:#1c2126;--published:#59636d;\
--s0:#6aa8e0;--s1:#ee8a79;--s2:#5cc4b8;--s3:#bb9be0;--s4:#e0bf57;--s5:#93a4b5;--good:#5fc78f;--bad:#f2857c}}\
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\
main{max-width:960px;margin:0 auto;padding:40px 24px 80px}h1{font-size:30px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}\
.subtitle{color:var(--soft);margin:0 0 24px}h2{font-size:21px;margin:48px 0 6px;letter-spacing:-.005em}p{margin:0 0 14px;max-width:74ch}\
.verdicts{display:flex;flex-wrap:wrap;gap:8px;padding:0;margin:0 0 8px;list-style:none}\
.verdicts li{border:1px solid var(--line);border-radius:999px;padding:3px 12px 3px 10px;font-size:14px}\
.holds::before{content:'\\2713\\00a0';color:var(--good);font-weight:700}.fails::before{content:'\\2717\\00a0';color:var(--bad);font-weight:700}\
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 6px;padding:0;list-style:none;font-size:14px;color:var(--soft)}\
.legend i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px}\
figure{margin:12px 0 18px;padding:14px 16px 10px;background:var(--card);border:1px solid var(--line);border-radius:10px}\
figcaption{font-size:14px;color:var(--soft);margin:0 0 6px}svg{display:block;width:100%;height:auto;font:12px system-ui,sans-serif}\
svg text{fill:var(--ink)}svg .tick,svg .axis{fill:var(--soft);font-size:11px}svg .group{font-weight:600;font-size:12.5px}\
svg .label{fill:var(--soft)}svg .value{font-variant-numeric:tabular-nums}.grid{stroke:var(--line);stroke-width:1}\
.published{fill:var(--published);background:var(--published)}.head{fill:none;stroke:var(--soft);stroke-width:1}.curve{fill:none!important;stroke-width:2}\
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}.scroll{overflow-x:auto}\
th,td{text-align:right;padding:5px 10px;border-bottom:1px solid var(--line);white-space:nowrap}th:first-child,td:first-child{text-align:left}\
th{color:var(--soft);font-weight:600}";

impl Page {
    /// The page as one HTML file.
    pub fn render(&self) -> String {
        let mut html = String::new();
        let title = escape(&self.title);
        let _ = write!(
            html,
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <title>{title}</title><style>{STYLE}"
        );
        for number in 0..6 {
            let _ = write!(
                html,
                ".s{number}{{fill:var(--s{number});background:var(--s{number})}}.curve.s{number}{{stroke:var(--s{number})}}"
            );
        }
        let subtitle = escape(&self.subtitle);
        let _ =
            write!(html, "</style></head><body><main><h1>{title}</h1><p class=\"subtitle\">{subtitle}</p>");
        self.render_verdicts(&mut html);
        for section in &self.sections {
            section.render(&mut html);
        }
        html.push_str("</main></body></html>\n");
        html
    }

    fn render_verdicts(&self, html: &mut String) {
        if self.verdicts.is_empty() {
            return;
        }
        html.push_str("<ul class=\"verdicts\">");
        for (name, holds) in &self.verdicts {
            let class = if *holds { "holds" } else { "fails" };
            let _ = write!(html, "<li class=\"{class}\">{}</li>", escape(name));
        }
        html.push_str("</ul>");
    }
}

impl Section {
    fn render(&self, html: &mut String) {
        let _ = write!(html, "<section><h2>{}</h2><p>{}</p>", escape(&self.heading), escape(&self.text));
        if !self.legend.is_empty() {
            html.push_str("<ul class=\"legend\">");
            for (colour, label) in &self.legend {
                let _ = write!(html, "<li><i class=\"{}\"></i>{}</li>", colour.class(), escape(label));
            }
            html.push_str("</ul>");
        }
        for (caption, figure) in &self.figures {
            let _ = write!(
                html,
                "<figure><figcaption>{}</figcaption>{}</figure>",
                escape(caption),
                figure.draw()
            );
        }
        if let Some(table) = &self.table {
            table.render(html);
        }
        html.push_str("</section>");
    }
}

impl Table {
    fn render(&self, html: &mut String) {
        html.push_str("<div class=\"scroll\"><table><thead><tr>");
        for heading in &self.headings {
            let _ = write!(html, "<th>{}</th>", escape(heading));
        }
        html.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for cell in row {
                let _ = write!(html, "<td>{}</td>", escape(cell));
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table></div>");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bar, BarChart, BarGroup, Curve, CurveChart, Lane, Timeline};
    use super::*;

    /// Every figure draws finite coordinates, whatever it is given, and the page loads nothing.
    #[test]
    fn a_page_is_self_contained_and_finite() {
        let bars = |value| BarChart {
            axis: "MB/s".into(),
            groups: vec![BarGroup {
                label: "readers".into(),
                bars: vec![Bar { label: "2009".into(), value, colour: Colour::Published }],
            }],
        };
        let lane =
            Lane { label: "writer".into(), colour: Colour::Series(1), spans: vec![(0.0, 0.1), (0.3, 0.4)] };
        let timeline = Timeline {
            window_s: (0.0, 1.0),
            lanes: vec![lane],
            head: vec![(0.0, 0.0), (0.5, 5.0), (1.0, 8.0)],
        };
        let curve = Curve {
            label: "direct".into(),
            colour: Colour::Series(0),
            points: vec![(50.0, 80.0), (99.9, 900.0)],
        };
        let empty = Timeline { window_s: (0.0, 0.0), lanes: vec![], head: vec![] };
        let section = Section {
            heading: "A & B".into(),
            text: "text".into(),
            legend: vec![(Colour::Published, "published".into())],
            figures: vec![
                ("bars".into(), Box::new(bars(101.0))),
                ("nothing measured".into(), Box::new(bars(0.0))),
                ("time".into(), Box::new(timeline)),
                ("no time".into(), Box::new(empty)),
                ("curves".into(), Box::new(CurveChart { curves: vec![curve] })),
                ("no curves".into(), Box::new(CurveChart { curves: vec![] })),
            ],
            table: Some(Table { headings: vec!["row".into()], rows: vec![vec!["1".into()]] }),
        };
        let page = Page {
            title: "t".into(),
            subtitle: "s".into(),
            verdicts: vec![("v".into(), true)],
            sections: vec![section],
        };
        let html = page.render();
        assert!(!html.contains("NaN") && !html.contains("inf"), "coordinates are finite");
        assert!(!html.contains("http") && !html.contains("src="), "loads nothing");
        assert!(html.contains("A &amp; B"));
        assert_eq!(html.matches("<svg").count(), 6);
    }
}
