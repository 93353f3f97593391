package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// page is the document with the generated tables.
const page = "docs/reference.md"

func main() {
	if err := run("."); err != nil {
		fmt.Fprintf(os.Stderr, "reference: %v\n", err)
		os.Exit(1)
	}
}

// run replaces the tables of the page below root.
func run(root string) error {
	tables, err := fieldTables(filepath.Join(root, "config/crd/bases"))
	if err != nil {
		return fmt.Errorf("reading the CRDs: %w", err)
	}
	found, err := metrics(filepath.Join(root, "internal"))
	if err != nil {
		return fmt.Errorf("reading the metrics: %w", err)
	}
	tables["metrics"] = metricTable(found)

	name := filepath.Join(root, page)
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	changed, err := replaceTables(string(text), tables)
	if err != nil {
		return fmt.Errorf("writing %s: %w", page, err)
	}
	if changed == string(text) {
		return nil
	}
	return os.WriteFile(name, []byte(changed), 0o644) //nolint:gosec // A document of the repository.
}

// replaceTables returns the document with each table between its markers. Every
// marker needs a table; a table without a marker is left out.
func replaceTables(document string, tables map[string]string) (string, error) {
	marked := regexp.MustCompile(`(?s)<!-- begin ([^\n]+?) -->\n.*?<!-- end ([^\n]+?) -->\n`)
	var errs []error
	changed := marked.ReplaceAllStringFunc(document, func(section string) string {
		names := marked.FindStringSubmatch(section)
		table, ok := tables[names[1]]
		switch {
		case names[1] != names[2]:
			errs = append(errs, fmt.Errorf("the table %q ends with the marker of %q", names[1], names[2]))
		case !ok:
			errs = append(errs, fmt.Errorf("there is no table %q", names[1]))
		}
		return fmt.Sprintf("<!-- begin %s -->\n%s<!-- end %s -->\n", names[1], table, names[2])
	})
	return changed, errors.Join(errs...)
}

// row formats a row of a table in Markdown.
func row(cells ...string) string {
	for i, c := range cells {
		cells[i] = strings.NewReplacer("|", `\|`, "\n", " ").Replace(c)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}
