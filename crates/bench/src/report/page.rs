//! The page around the figures.

use std::fmt::Write;

use super::style::STYLE;
use super::svg::{escape, readable};
use super::{BarChart, Colour};
use crate::rows::{Better, Verdict};

/// Numbers in rows and columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Column headings.
    pub headings: Vec<String>,
    /// Cells; the first of a row is its name.
    pub rows: Vec<Vec<String>>,
}

/// A chart with its caption.
pub struct Captioned {
    /// Its caption.
    pub caption: String,
    /// The chart.
    pub figure: BarChart,
}

/// A heading, text, figures, and numbers.
pub struct Section {
    /// Heading.
    pub heading: String,
    /// The method, in a few sentences.
    pub text: String,
    /// The result, in one sentence.
    pub headline: String,
    /// Verdicts.
    pub verdicts: Vec<Verdict>,
    /// Colours and their meaning.
    pub legend: Vec<(Colour, String)>,
    /// The figures.
    pub figures: Vec<Captioned>,
    /// The same numbers.
    pub table: Option<Table>,
    /// An explanation of the figures.
    pub notes: Vec<String>,
}

/// A whole report.
pub struct Page {
    /// Title.
    pub title: String,
    /// Host and version.
    pub subtitle: String,
    /// The sections, in order.
    pub sections: Vec<Section>,
}

impl Page {
    /// The page as one HTML file.
    pub fn render(&self) -> String {
        let mut html = String::new();
        let (title, subtitle) = (escape(&self.title), escape(&self.subtitle));
        let _ = write!(
            html,
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <title>{title}</title><style>{STYLE}</style></head><body><main><h1>{title}</h1><p class=\"subtitle\">{subtitle}</p>"
        );
        self.render_overview(&mut html);
        for (index, section) in self.sections.iter().enumerate() {
            section.render(&mut html, index);
        }
        html.push_str("</main></body></html>\n");
        html
    }

    /// A card for each section: its result, and the number of verdicts that hold.
    fn render_overview(&self, html: &mut String) {
        html.push_str("<ul class=\"tables\">");
        for (index, section) in self.sections.iter().enumerate() {
            let all = section.verdicts.len();
            let held = section.verdicts.iter().filter(|verdict| verdict.holds).count();
            let class = if held == all { "good" } else { "bad" };
            let _ = write!(
                html,
                "<li><a href=\"#t{index}\"><b>{}</b><span>{}</span>",
                escape(&section.heading),
                escape(&section.headline)
            );
            if all > 0 {
                let _ = write!(html, "<span class=\"count {class}\">{held} of {all} verdicts hold</span>");
            }
            html.push_str("</a></li>");
        }
        html.push_str("</ul>");
    }
}

impl Section {
    fn render(&self, html: &mut String, index: usize) {
        let _ = write!(
            html,
            "<section id=\"t{index}\"><h2>{}</h2><p>{}</p><p class=\"headline\">{}</p>",
            escape(&self.heading),
            escape(&self.text),
            escape(&self.headline)
        );
        self.render_verdicts(html);
        if !self.legend.is_empty() {
            html.push_str("<h3>Figures</h3><ul class=\"legend\">");
            for (colour, label) in &self.legend {
                let _ = write!(html, "<li><i class=\"{}\"></i>{}</li>", colour.class(), escape(label));
            }
            html.push_str("</ul>");
        }
        html.push_str("<div class=\"figures\">");
        for Captioned { caption, figure } in &self.figures {
            let (caption, drawing) = (escape(caption), figure.draw());
            let _ = write!(html, "<figure><figcaption>{caption}</figcaption>{drawing}</figure>");
        }
        html.push_str("</div>");
        if let Some(table) = &self.table {
            table.render(html);
        }
        if !self.notes.is_empty() {
            html.push_str("<h3>To judge these figures</h3>");
        }
        for note in &self.notes {
            let _ = write!(html, "<p class=\"note\">{}</p>", escape(note));
        }
        html.push_str("</section>");
    }

    fn render_verdicts(&self, html: &mut String) {
        if self.verdicts.is_empty() {
            return;
        }
        html.push_str("<h3>What must hold</h3><ul class=\"verdicts\">");
        for verdict in &self.verdicts {
            let class = if verdict.holds { "holds" } else { "fails" };
            let sign = if verdict.better == Better::Higher { '\u{2265}' } else { '\u{2264}' };
            // The name of the table is in the heading.
            let name = verdict.name.split_once(": ").map_or(&*verdict.name, |(_, name)| name);
            let _ = write!(
                html,
                "<li class=\"{class}\"><span>{}{}</span><b>{}</b><i>{sign} {}</i></li>",
                escape(name),
                verdict.reason.as_ref().map_or_else(String::new, |reason| format!(". {}", escape(reason))),
                readable(verdict.measured),
                readable(verdict.target)
            );
        }
        html.push_str("</ul>");
    }
}

impl Table {
    fn render(&self, html: &mut String) {
        html.push_str("<details><summary>The numbers</summary><div class=\"scroll\"><table><thead><tr>");
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
        html.push_str("</tbody></table></div></details>");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bar, BarGroup};
    use super::*;

    fn figures() -> Vec<Captioned> {
        let bars = |value| BarChart {
            axis: "MB/s".into(),
            groups: vec![BarGroup {
                label: "readers with a name that needs several lines".into(),
                bars: vec![Bar { label: "2009".into(), value, colour: Colour::Published }],
            }],
        };
        let figures = [bars(101.0), bars(0.0)];
        let caption = |(index, figure)| Captioned { caption: format!("figure {index}"), figure };
        figures.into_iter().enumerate().map(caption).collect()
    }

    /// Each figure has finite coordinates, and the page loads nothing.
    #[test]
    fn a_page_is_self_contained_and_finite() {
        let section = Section {
            heading: "A & B".into(),
            text: "text".into(),
            headline: "came out".into(),
            verdicts: vec![
                Verdict::at_least("a: speed", 1.0, 2.0),
                Verdict::at_most("a: cost <1>", 1.0, 2.0),
            ],
            legend: vec![(Colour::Published, "published".into())],
            figures: figures(),
            table: Some(Table { headings: vec!["row".into()], rows: vec![vec!["1".into()]] }),
            notes: vec!["a note".into()],
        };
        let page = Page { title: "t".into(), subtitle: "s".into(), sections: vec![section] };
        let html = page.render();
        assert!(!html.contains("NaN") && !html.contains("inf"), "coordinates are finite");
        assert!(!html.contains("http") && !html.contains("src="), "loads nothing");
        assert!(html.contains("A &amp; B") && html.contains("cost &lt;1&gt;"));
        assert!(html.contains("1 of 2 verdicts hold") && html.contains("class=\"fails\""));
        assert_eq!(html.matches("<svg").count(), 2);
    }
}
