//! What a dataset consists of, in words: images, or rows of features.

/// What is trained and tested on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Examples {
    /// Images.
    Images,
    /// Rows of features.
    Rows,
}

impl Examples {
    /// Rows if these are features, else images.
    #[must_use]
    pub fn of_features(are_features: bool) -> Self {
        if are_features { Self::Rows } else { Self::Images }
    }

    /// What a model is trained on, by its name.
    #[must_use]
    pub fn of_model(name: &str) -> Self {
        Self::of_features(matches!(name, "linear" | "cosine" | "mlp"))
    }

    /// `image` or `row`.
    #[must_use]
    pub fn one(self) -> &'static str {
        match self {
            Self::Images => "image",
            Self::Rows => "row",
        }
    }

    /// `images` or `rows`.
    #[must_use]
    pub fn many(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Rows => "rows",
        }
    }

    /// `1 image`, `2 images`; with a kind, `2 test images`.
    #[must_use]
    pub fn counted(self, number: u64, kind: &str) -> String {
        let space = if kind.is_empty() { "" } else { " " };
        format!("{number} {kind}{space}{}", if number == 1 { self.one() } else { self.many() })
    }

    /// A text about images, without names in it, as one about these examples.
    #[must_use]
    pub fn say(self, text: &str) -> String {
        match self {
            Self::Images => text.to_owned(),
            Self::Rows => text.replace("image", "row").replace("Image", "Row"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_rows() {
        assert_eq!(Examples::of_model("resnet8").counted(1, "test"), "1 test image");
        assert_eq!(Examples::of_model("mlp").counted(2, ""), "2 rows");
        assert_eq!(Examples::Rows.say("No test images: the image"), "No test rows: the row");
        assert_eq!(Examples::Images.say("images/s"), "images/s");
    }
}
