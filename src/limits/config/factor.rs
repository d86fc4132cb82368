//! Reads and writes a [`Factor`].

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

use crate::limit::Factor;
use crate::limits::read::shown_scalar;

use super::nodes::scalar;
use super::tree::Tree;

/// Reads a number from 0, or the text of one: `0.5` or `"0.5"`.
///
/// # Errors
///
/// An error of the format, with the message of [`Factor::from_str`](std::str::FromStr::from_str).
///
/// # Example
///
/// ```
/// use tollgate::limit::Factor;
///
/// let factors: Vec<Factor> = serde_json::from_str(r#"[2, 0.5, "0.25"]"#)?;
/// assert_eq!(factors[1], Factor::from_millionths(500_000));
/// assert_eq!(serde_json::to_string(&factors)?, "[2,0.5,0.25]");
/// # Ok::<(), serde_json::Error>(())
/// ```
impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Factor, D::Error> {
        match Tree::deserialize(deserializer)? {
            Tree::Integer(number) => number.to_string().parse(),
            // The conversion says the shortest decimal, without a point for a whole number.
            Tree::Float(number) => Factor::try_from(number),
            Tree::Text(text) => text.parse(),
            other => {
                let given = match other {
                    Tree::List(_) => "a list".into(),
                    Tree::Map(_) => "a map".into(),
                    scalar_tree => shown_scalar(&scalar(&scalar_tree)),
                };
                let message = format!("invalid factor {given}: a number from 0 is allowed");
                return Err(D::Error::custom(message));
            }
        }
        .map_err(D::Error::custom)
    }
}

/// Writes a number; as text if some readers of floating-point numbers would not read all of its digits.
impl Serialize for Factor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// The largest number of millionths that every reader of floating-point numbers reads as it is.
        const MAX_MILLIONTHS: u64 = 1 << 53;
        let text = self.to_string();
        if let Ok(whole) = text.parse() {
            return serializer.serialize_u64(whole);
        }
        match text.parse() {
            Ok(number) if self.millionths() <= MAX_MILLIONTHS => serializer.serialize_f64(number),
            _ => serializer.serialize_str(&text),
        }
    }
}
