package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// apiPackage is the name by which code imports the API, whose constants are
// reasons.
const apiPackage = "infrav1"

func TestEventsAreDocumented(t *testing.T) {
	g := NewWithT(t)
	_, section, found := strings.Cut(read(t, "docs/reference.md"), "\n## Events\n")
	g.Expect(found).To(BeTrue(), "docs/reference.md has no section Events")
	var documented []string
	for _, name := range regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(section, -1) {
		documented = append(documented, name[1])
	}
	slices.Sort(documented)
	g.Expect(slices.Compact(documented)).To(Equal(eventReasons(t)))
}

// eventReasons returns the reasons of all Events that the manager emits, but
// those of ElementalRemediations, which are the reasons of their conditions.
func eventReasons(t *testing.T) []string {
	t.Helper()
	api := map[string]string{}
	addConstants(api, apiPackage+".", parse(t, filepath.Join(root, "api/v1beta2/conditions.go")))
	packages := map[string][]*ast.File{}
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		folder := filepath.Dir(name)
		packages[folder] = append(packages[folder], parse(t, name))
		return nil
	})
	if err != nil {
		t.Fatalf("reading the sources: %v", err)
	}
	reasons := map[string]bool{}
	for folder, files := range packages {
		if filepath.Base(folder) == "remediation" {
			continue
		}
		e := emitters{constants: maps.Clone(api), wrappers: map[string]int{}}
		for _, file := range files {
			addConstants(e.constants, "", file)
		}
		for _, f := range functions(files) {
			e.addWrapper(f)
		}
		for _, f := range functions(files) {
			for _, reason := range e.reasonsOf(f) {
				reasons[reason] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(reasons))
}

// emitters finds the reasons of Events in the functions of a package.
type emitters struct {
	// constants has the strings that identifiers stand for.
	constants map[string]string
	// wrappers are functions that pass a parameter on as the reason of an Event:
	// the index of that parameter by the function's name.
	wrappers map[string]int
}

// addWrapper records the function if it passes a parameter on as a reason.
func (e *emitters) addWrapper(f *ast.FuncDecl) {
	parameters := map[string]int{}
	for _, field := range f.Type.Params.List {
		for _, name := range field.Names {
			parameters[name.Name] = len(parameters)
		}
	}
	ast.Inspect(f, func(node ast.Node) bool {
		if reason := eventReason(node); reason != nil {
			if index, ok := parameters[nameOf(reason)]; ok {
				e.wrappers[f.Name.Name] = index
			}
		}
		return true
	})
}

// reasonsOf returns the reasons of the Events that a function emits or builds. Where
// the reason is that of a condition, it is one that a case of the function names.
func (e *emitters) reasonsOf(f *ast.FuncDecl) []string {
	assigned := e.assigned(f)
	var reasons, cases []string
	emits := false
	add := func(reason ast.Expr) {
		reasons = append(reasons, e.value(reason)...)
		reasons = append(reasons, assigned[nameOf(reason)]...)
	}
	ast.Inspect(f, func(node ast.Node) bool {
		if reason := eventReason(node); reason != nil {
			emits = true
			add(reason)
		}
		switch n := node.(type) {
		case *ast.CallExpr:
			if index, ok := e.wrappers[nameOf(n.Fun)]; ok && index < len(n.Args) {
				add(n.Args[index])
			}
		case *ast.CaseClause:
			for _, label := range n.List {
				cases = append(cases, e.value(label)...)
			}
		}
		return true
	})
	if emits {
		reasons = append(reasons, cases...)
	}
	return reasons
}

// assigned returns the constants that a function assigns to its variables.
func (e *emitters) assigned(f *ast.FuncDecl) map[string][]string {
	values := map[string][]string{}
	ast.Inspect(f, func(node ast.Node) bool {
		assignment, ok := node.(*ast.AssignStmt)
		if !ok || len(assignment.Lhs) != len(assignment.Rhs) {
			return true
		}
		for i, variable := range assignment.Lhs {
			if name, ok := variable.(*ast.Ident); ok {
				values[name.Name] = append(values[name.Name], e.value(assignment.Rhs[i])...)
			}
		}
		return true
	})
	return values
}

// value returns the string that an expression stands for, if that is a constant.
func (e *emitters) value(of ast.Expr) []string {
	if literal, ok := of.(*ast.BasicLit); ok && literal.Kind == token.STRING {
		if text, err := strconv.Unquote(literal.Value); err == nil {
			return []string{text}
		}
	}
	name := nameOf(of)
	if selector, ok := of.(*ast.SelectorExpr); ok {
		name = nameOf(selector.X) + "." + name
	}
	if text, ok := e.constants[name]; ok {
		return []string{text}
	}
	return nil
}

// eventReason returns the reason of Recorder.Eventf(regarding, related, type,
// reason, …) and of Event{type, reason, message}.
func eventReason(node ast.Node) ast.Expr {
	switch n := node.(type) {
	case *ast.CallExpr:
		if nameOf(n.Fun) == "Eventf" && len(n.Args) > 5 {
			return n.Args[3]
		}
	case *ast.CompositeLit:
		if nameOf(n.Type) != "Event" || len(n.Elts) < 3 {
			return nil
		}
		for _, element := range n.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok && nameOf(pair.Key) == "Reason" {
				return pair.Value
			}
		}
		return n.Elts[1]
	}
	return nil
}

// nameOf returns an identifier, or the last part of a selector.
func nameOf(of ast.Expr) string {
	switch n := of.(type) {
	case *ast.Ident:
		return n.Name
	case *ast.SelectorExpr:
		return n.Sel.Name
	}
	return ""
}

func functions(files []*ast.File) []*ast.FuncDecl {
	var out []*ast.FuncDecl
	for _, file := range files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				out = append(out, f)
			}
		}
	}
	return out
}

func parse(t *testing.T, name string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("parsing %s: %v", name, err)
	}
	return file
}

// addConstants adds the string constants of a file under their names.
func addConstants(to map[string]string, prefix string, file *ast.File) {
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, v := range spec.Values {
			if literal, ok := v.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					to[prefix+spec.Names[i].Name] = text
				}
			}
		}
		return true
	})
}
