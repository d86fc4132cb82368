//! Whether a figure is what was promised of it.

/// Prints one line: what was measured, what it may be at most, and whether it is.
pub fn print_at_most(what: &str, figure: f64, at_most: f64, unit: &str) {
    print_line(what, figure, "at most", at_most, unit, figure <= at_most);
}

/// The same for what must not be less.
pub fn print_at_least(what: &str, figure: f64, at_least: f64, unit: &str) {
    print_line(what, figure, "at least", at_least, unit, figure >= at_least);
}

fn print_line(what: &str, figure: f64, side: &str, bound: f64, unit: &str, held: bool) {
    let verdict = if held { "held" } else { "missed" };
    println!("{what}: {figure:.2}{unit} ({side} {bound}{unit}): {verdict}");
}
