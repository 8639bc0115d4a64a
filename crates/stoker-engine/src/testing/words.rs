//! Questions and answers about nothing in particular, of varied length.

use super::random::Random;

const THINGS: [&str; 24] = [
    "bicycle",
    "window",
    "river",
    "kitchen table",
    "old bridge",
    "market stall",
    "painted door",
    "stone wall",
    "bus stop",
    "lighthouse",
    "garden",
    "harbour",
    "bookshelf",
    "street lamp",
    "staircase",
    "orchard",
    "railway platform",
    "rain-soaked pavement",
    "fishing boat",
    "tower",
    "café terrace",
    "greenhouse",
    "snowy field",
    "workshop",
];
const LOOKS: [&str; 16] = [
    "red",
    "weathered",
    "brightly lit",
    "half-hidden",
    "narrow",
    "crowded",
    "empty",
    "blue-grey",
    "tall",
    "rusty",
    "wooden",
    "out-of-focus",
    "familiar",
    "sunlit",
    "broken",
    "newly painted",
];
const PLACES: [&str; 12] = [
    "on the left",
    "in the foreground",
    "behind the trees",
    "near the water",
    "at the far end",
    "above the entrance",
    "beside the road",
    "in the middle",
    "under a cloudy sky",
    "to the right",
    "in the shade",
    "just out of view",
];
const ACTS: [&str; 12] = [
    "stands",
    "leans against a fence",
    "catches the light",
    "casts a long shadow",
    "draws the eye",
    "fills most of the frame",
    "is partly covered",
    "shows signs of wear",
    "seems to be in use",
    "has been left open",
    "is reflected in the glass",
    "marks the boundary",
];

/// A question about that many images.
pub(super) fn question(random: &mut Random, images: usize) -> String {
    let (thing, place) = (*random.choose(&THINGS), *random.choose(&PLACES));
    let forms = match images {
        0 => [
            "Tell me about a {thing} {place}.",
            "How would you describe a {thing} to a child?",
            "Why might a {thing} be found {place}?",
            "What makes a good {thing}?",
        ],
        1 => [
            "What is {place}?",
            "Describe the {thing} {place} in detail.",
            "What is shown here?",
            "How many people can be seen {place}, and what is the {thing} for?",
        ],
        _ => [
            "What differs between the two pictures?",
            "In which of them is the {thing} {place}?",
            "Were both taken at the same time of day?",
            "Compare what is {place} in each.",
        ],
    };
    random.choose(&forms).replace("{thing}", thing).replace("{place}", place)
}

/// An answer of one to eight sentences.
pub(super) fn answer(random: &mut Random) -> String {
    let sentences = 1 + random.below(4) * random.below(3);
    let sentences: Vec<String> = (0..=sentences).map(|_| sentence(random)).collect();
    sentences.join(" ")
}

fn sentence(random: &mut Random) -> String {
    let (look, thing) = (random.choose(&LOOKS), random.choose(&THINGS));
    let (act, place) = (random.choose(&ACTS), random.choose(&PLACES));
    match random.below(4) {
        0 => format!("The {look} {thing} {act} {place}."),
        1 => format!(
            "There are {} of them {place}, and a {look} {thing} {act}.",
            2 + random.below(40)
        ),
        2 => format!("A {thing} {act}; it is {look}."),
        _ => format!("It looks as if a {thing} {act} {place}, next to something {look}."),
    }
}
