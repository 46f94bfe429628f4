//! Lines and tables in windows that are narrower than they are.

/// Columns within which a line may have its subject: the text after it begins there on the next lines, too.
const SUBJECT: usize = 16;

/// `text` with lines of at most `columns` columns, broken at spaces; as it is where nobody says how many there are.
pub fn wrapped(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.into() };
    text.split_inclusive('\n').map(|line| wrapped_line(line, columns)).collect()
}

fn wrapped_line(line: &str, columns: usize) -> String {
    // A picture of a pipeline cannot be broken.
    let is_picture = line.contains('|') && !line.contains(" | ");
    if line.trim_end_matches('\n').chars().count() <= columns || is_picture {
        return line.into();
    }
    let indent = hanging_indent(line);
    let start = line.len() - line.trim_start().len();
    let (mut text, mut width) = (line[..start].to_string(), start);
    // The ranks of a process in a picture of hosts stay together.
    let gap = if line.contains(" | ") { "| " } else { " " };
    // The spaces within a line stay, those at which it is broken do not.
    for word in line[start..].split_inclusive(gap) {
        let letters = word.trim_end().chars().count();
        if width + letters > columns && width > indent {
            text.truncate(text.trim_end().len());
            text += &format!("\n{:indent$}", "");
            width = indent;
        }
        text += word;
        width += word.trim_end_matches('\n').chars().count();
    }
    text
}

/// Where the text of a line begins, after its subject or its own indent.
fn hanging_indent(line: &str) -> usize {
    let start = line.len() - line.trim_start().len();
    let gap = line[start..].find("  ").map(|gap| start + gap).filter(|gap| *gap < SUBJECT);
    match gap {
        Some(gap) => gap + line[gap..].len() - line[gap..].trim_start().len(),
        None => start.max(2),
    }
}

/// Columns to the right, two spaces between them. Where they do not fit into `columns`, the table continues below with
/// its first column again.
pub fn table(rows: &[Vec<String>], columns: Option<usize>) -> String {
    let count = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut blocks: Vec<Vec<usize>> = vec![];
    for column in 0..count {
        let fits = |block: &Vec<usize>| {
            let all = block.iter().chain([&column]).map(|column| widths[*column] + 2).sum::<usize>() - 2;
            columns.is_none_or(|columns| all <= columns)
        };
        match blocks.last_mut() {
            None => blocks.push(vec![column]),
            Some(block) if fits(block) || *block == [0] => block.push(column),
            Some(_) => blocks.push(vec![0, column]),
        }
    }
    let line = |row: &Vec<String>, block: &[usize]| {
        let cells = block.iter().map(|column| format!("{:>width$}", row[*column], width = widths[*column]));
        format!("{}\n", cells.collect::<Vec<_>>().join("  "))
    };
    let block = |block: &Vec<usize>| rows.iter().map(|row| line(row, block)).collect::<String>();
    blocks.iter().map(block).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_continue_under_their_text() {
        let text = "memory  one two three four\n  a | 0 | 1 |\nshort\n        alone and indented\n";
        assert_eq!(wrapped(text, None), text);
        assert_eq!(wrapped(text, Some(80)), text);
        let narrow =
            "memory  one two\n        three\n        four\n  a | 0 | 1 |\nshort\n        alone and\n        indented\n";
        assert_eq!(wrapped(text, Some(17)), narrow);
        assert_eq!(
            wrapped("a-word-that-has-no-spaces and more\n", Some(10)),
            "a-word-that-has-no-spaces\n  and more\n"
        );
    }

    #[test]
    fn ranks_of_a_process_stay_together() {
        let text = "  a  | 0 1 | 2 3 | 4 5 |\n";
        assert_eq!(wrapped(text, Some(20)), "  a  | 0 1 | 2 3 |\n     4 5 |\n");
        assert_eq!(wrapped("  pp 0 |F0-F1-B0----B1----|\n", Some(20)), "  pp 0 |F0-F1-B0----B1----|\n");
    }

    #[test]
    fn a_wide_table_continues_below_with_its_first_column() {
        let rows = [["stage", "one", "three", "all"], ["0", "1.00 kB", "2 B", "12.0 MB"]];
        let rows = rows.map(|row| row.map(String::from).to_vec());
        let wide = "stage      one  three      all\n    0  1.00 kB    2 B  12.0 MB\n";
        assert_eq!((table(&rows, None).as_str(), table(&rows, Some(30)).as_str()), (wide, wide));
        let narrow = "stage      one  three\n    0  1.00 kB    2 B\n\nstage      all\n    0  12.0 MB\n";
        assert_eq!(table(&rows, Some(29)), narrow);
    }
}
