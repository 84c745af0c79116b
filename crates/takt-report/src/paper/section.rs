//! The section that a report of a paper's campaign begins with.

use super::beside::{self, Beside};
use super::{Definition, Item, Paper};
use crate::collect::Collection;
use crate::document::{Block, Section};
use crate::supplement::{Context, Supplements};
use crate::table::{Cell, Table};

/// The papers that runs of a collection name, each with the robot that reproduces it.
pub(crate) fn papers(collection: &Collection, supplements: &Supplements) -> Vec<(String, &'static Paper)> {
    let mut found: Vec<(String, &'static Paper)> = Vec::new();
    for run in &collection.runs {
        let (robot, key) = (&run.header.robot, &run.header.experiment.paper);
        let paper = supplements
            .of(robot)
            .and_then(|supplement| supplement.papers().iter().find(|paper| paper.key == key.as_str()));
        if let Some(paper) = paper
            && !found.iter().any(|(other, known)| other == robot && known.key == paper.key)
        {
            found.push((robot.clone(), paper));
        }
    }
    found
}

/// The paper's tables and figures in its order and shape, its figures beside ours, then what
/// differs.
pub(crate) fn section(paper: &Paper, collection: &Collection, contexts: &[&Context<'_>]) -> Section {
    let mut section = Section::new(
        format!("paper-{}", paper.key),
        format!("{}: the paper's tables and figures next to ours", paper.name),
    );
    section
        .add(Block::Paragraph(format!("{}. Their measurements were made on {}.", paper.title, paper.setup)));
    for item in paper.items {
        add(item, collection, contexts, &mut section);
    }
    section.add(Block::Heading("What differs in this setup".to_owned()));
    let here = paper.differs_here.map_or_else(Vec::new, |differs| differs(collection));
    let scaled = scaled(collection);
    let fixed = paper.differs.iter().map(|sentence| (*sentence).to_owned());
    section.add(Block::List(scaled.into_iter().chain(here).chain(fixed).collect()));
    section
}

/// Parts of the configurations that were not run, each sentence once.
pub(crate) fn scaled(collection: &Collection) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    for sentence in collection.runs.iter().filter_map(|run| run.header.scaled.as_ref()) {
        if !sentences.contains(sentence) {
            sentences.push(sentence.clone());
        }
    }
    sentences
}

fn add(item: &Item, collection: &Collection, contexts: &[&Context<'_>], section: &mut Section) {
    section.add(Block::Heading(format!("{}. {}", item.number, item.caption)));
    let blocks = item.show.map_or_else(Vec::new, |show| show(item, collection, contexts));
    let nothing = blocks.is_empty() && item.headlines.is_empty();
    blocks.into_iter().for_each(|block| section.add(block));
    if !item.headlines.is_empty() {
        let besides = beside::of_item(item.number, item.headlines, collection, contexts);
        section.add(Block::Table(table(item.number, &besides)));
    }
    let words = match item.definition {
        Definition::Same if nothing => format!("These runs do not have it. Ours: {}.", item.ours),
        Definition::Same => format!("Ours: {}. Same definition.", item.ours),
        Definition::Differs(how) => format!("Ours: {}. Not the same: {how}", item.ours),
        Definition::Absent(why) => format!("Not reproduced: {why}"),
    };
    section.add(Block::Paragraph(words));
}

/// Published values beside ours.
fn table(number: &str, besides: &[Beside]) -> Table {
    let heads = ["What", "#Paper", "#Ours", "#Ours / paper", "Our configuration"];
    let mut table = Table::new(format!("{number}: published values, and ours"), &heads);
    for beside in besides {
        let figure = beside::figure;
        let ours = match beside.ours {
            Some([middle, low, high]) if low == high => {
                Cell::number(format!("{} {}", figure(middle), beside.unit))
            }
            Some([middle, low, high]) => Cell::Estimate(
                format!("{} {}", figure(middle), beside.unit),
                Some(figure(low)),
                Some(figure(high)),
            ),
            None => Cell::gap("not measured"),
        };
        table.push(vec![
            Cell::text(&beside.what),
            Cell::number(&beside.published),
            ours,
            beside
                .ratio
                .map_or_else(|| Cell::gap("nothing to divide"), |ratio| Cell::number(format!("{ratio:.2}"))),
            Cell::text(&beside.here),
        ]);
    }
    table.note("Ours: the median over the repetitions, with the least and the greatest in brackets.");
    table
}
