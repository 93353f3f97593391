package docs_test

import (
	"go/ast"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// pages returns all documents: those of docs, with the decisions, and those
// beside the code, relative to the root.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "test/*.md", "test/*/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatalf("listing %s: %v", pattern, err)
		}
		for _, name := range found {
			relative, err := filepath.Rel(root, name)
			if err != nil {
				t.Fatalf("listing %s: %v", pattern, err)
			}
			all = append(all, relative)
		}
	}
	return all
}

func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)]*))?\)`)
	for _, page := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(withoutCode(read(t, page)), -1) {
			target := page
			if found[1] != "" {
				target = filepath.Join(filepath.Dir(page), found[1])
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, target)
				continue
			}
			if found[2] != "" && !slices.Contains(anchors(read(t, target)), found[2]) {
				t.Errorf("%s links to %s#%s, but there is no such heading", page, target, found[2])
			}
		}
	}
}

// Paths in backticks exist, in the pages that describe the source tree.
func TestNamedPathsExist(t *testing.T) {
	// Paths from the root and, for test/README.md, from its folder; with a wildcard or without.
	path := regexp.MustCompile("`(?:\\./)?((?:api|cmd|config|docs|hack|internal|templates|test|harness|suite)/[A-Za-z0-9_./*-]+)`")
	for _, page := range []string{"README.md", "docs/architecture.md", "docs/glossary.md", "test/README.md"} {
		for _, found := range path.FindAllStringSubmatch(read(t, page), -1) {
			name := found[1]
			if page == "test/README.md" && !strings.HasPrefix(name, "test/") && !strings.HasPrefix(name, "docs/") {
				name = "test/" + name
			}
			if matches, err := filepath.Glob(filepath.Join(root, name)); err != nil || len(matches) == 0 {
				t.Errorf("%s names %s, which does not exist", page, name)
			}
		}
	}
}

// Exported names in backticks, such as `placement.Constraints`, are declared.
func TestNamedTypesExist(t *testing.T) {
	declared := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file := parse(t, name)
		for exported := range exportedNames(file) {
			declared[file.Name.Name+"."+exported] = true
		}
		return nil
	})
	if err != nil {
		t.Fatalf("reading the sources: %v", err)
	}
	qualified := regexp.MustCompile("`([a-z]+)\\.([A-Z][A-Za-z]+)`")
	for _, page := range []string{"docs/architecture.md", "docs/glossary.md"} {
		for _, found := range qualified.FindAllStringSubmatch(read(t, page), -1) {
			if name := found[1] + "." + found[2]; !declared[name] {
				t.Errorf("%s names %s, which is not declared", page, name)
			}
		}
	}
}

// exportedNames returns the exported types, functions, constants and variables of a file.
func exportedNames(file *ast.File) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, d := range file.Decls {
			var names []string
			switch d := d.(type) {
			case *ast.FuncDecl:
				names = append(names, d.Name.Name)
			case *ast.GenDecl:
				names = append(names, specNames(d)...)
			}
			for _, name := range names {
				if ast.IsExported(name) && !yield(name) {
					return
				}
			}
		}
	}
}

func specNames(d *ast.GenDecl) []string {
	var names []string
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			names = append(names, s.Name.Name)
		case *ast.ValueSpec:
			for _, name := range s.Names {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

// Each decision is in the list of decisions, with its title.
func TestDecisionsAreListed(t *testing.T) {
	g := NewWithT(t)
	list := read(t, "docs/adr/README.md")
	for _, page := range pages(t) {
		if filepath.Dir(page) != "docs/adr" || filepath.Base(page) == "README.md" {
			continue
		}
		number, _, _ := strings.Cut(filepath.Base(page), "-")
		title, _, _ := strings.Cut(read(t, page), "\n")
		g.Expect(title).To(HavePrefix("# "+number+": "), page)
		g.Expect(list).To(ContainSubstring("| [" + number + "](" + filepath.Base(page) + ") | " + strings.TrimPrefix(title, "# "+number+": ") + " |\n"))
	}
}

// The figures of the README are those of the last benchmarks.
func TestFiguresAreMeasured(t *testing.T) {
	g := NewWithT(t)
	figures := regexp.MustCompile(`[0-9][0-9.,]* (?:KiB|MiB|GiB|%|ms|s)\b|[0-9.]+ %`).FindAllString(read(t, "README.md"), -1)
	g.Expect(figures).NotTo(BeEmpty())
	for _, figure := range figures {
		g.Expect(read(t, "docs/benchmarks.md")).To(ContainSubstring("| "+figure+" |"), "the README has a figure that was not measured")
	}
}

// withoutCode removes blocks and spans of code.
func withoutCode(text string) string {
	text = regexp.MustCompile("(?s)\n *```.*?\n *```").ReplaceAllString(text, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(text, "``")
}

// anchors returns the fragments by which the headings of a page are linked to.
func anchors(text string) []string {
	var out []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ +(.*)$`).FindAllStringSubmatch(text, -1) {
		anchor := strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")
		out = append(out, regexp.MustCompile(`[^\p{L}\p{N}_-]`).ReplaceAllString(anchor, ""))
	}
	return out
}
