//! Compares figures with their targets.

/// Prints a figure, its upper bound, and whether it holds.
pub fn print_at_most(what: &str, figure: f64, at_most: f64, unit: &str) {
    print_line(what, figure, "at most", at_most, unit, figure <= at_most);
}

/// Prints a figure, its lower bound, and whether it holds.
pub fn print_at_least(what: &str, figure: f64, at_least: f64, unit: &str) {
    print_line(what, figure, "at least", at_least, unit, figure >= at_least);
}

fn print_line(what: &str, figure: f64, side: &str, bound: f64, unit: &str, held: bool) {
    let verdict = if held { "held" } else { "missed" };
    println!("{what}: {figure:.2}{unit} ({side} {bound}{unit}): {verdict}");
}
