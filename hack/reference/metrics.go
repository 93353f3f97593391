package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// metric is a metric that the manager registers.
type metric struct {
	name, kind, help string
	labels           []string
}

// metrics returns the metrics that the Go sources below the folder construct, by
// name. Namespace, subsystem, name and help must be literals or constants of the
// same file.
func metrics(folder string) ([]metric, error) {
	var found []metric
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		of, err := metricsOf(file)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		found = append(found, of...)
		return nil
	})
	slices.SortFunc(found, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return found, err
}

// metricsOf returns the metrics that one file constructs.
func metricsOf(file *ast.File) ([]metric, error) {
	constants := stringConstants(file)
	labels := map[ast.Expr][]string{}
	var found []metric
	var failure error
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.CallExpr:
			// NewCounterVec(CounterOpts{…}, []string{…})
			if len(n.Args) == 2 {
				labels[n.Args[0]] = texts(n.Args[1])
			}
		case *ast.CompositeLit:
			kind, ok := metricKind(n.Type)
			if !ok {
				return true
			}
			m, err := metricFrom(n, constants)
			if err != nil {
				failure = err
				return false
			}
			m.kind, m.labels = kind, labels[n]
			found = append(found, m)
		}
		return true
	})
	return found, failure
}

// metricKind returns Counter for prometheus.CounterOpts, and so on.
func metricKind(of ast.Expr) (string, bool) {
	selector, ok := of.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	kind, isOpts := strings.CutSuffix(selector.Sel.Name, "Opts")
	from, ok := selector.X.(*ast.Ident)
	return kind, ok && isOpts && from.Name == "prometheus"
}

func metricFrom(options *ast.CompositeLit, constants map[string]string) (metric, error) {
	fields := map[string]string{}
	for _, element := range options.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, ok := pair.Key.(*ast.Ident)
		if !ok {
			continue
		}
		switch v := pair.Value.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(v.Value)
			if err != nil {
				return metric{}, fmt.Errorf("%s of a metric: %w", key.Name, err)
			}
			fields[key.Name] = text
		case *ast.Ident:
			fields[key.Name] = constants[v.Name]
		}
	}
	for _, key := range []string{"Namespace", "Subsystem", "Name", "Help"} {
		if fields[key] == "" {
			return metric{}, fmt.Errorf("%s of a metric is neither a literal nor a constant of the file", key)
		}
	}
	return metric{name: fields["Namespace"] + "_" + fields["Subsystem"] + "_" + fields["Name"], help: fields["Help"]}, nil
}

// stringConstants returns the string constants of a file by name.
func stringConstants(file *ast.File) map[string]string {
	constants := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if i >= len(spec.Values) {
				break
			}
			if literal, ok := spec.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					constants[name.Name] = text
				}
			}
		}
		return true
	})
	return constants
}

// texts returns the string literals of a composite literal.
func texts(list ast.Expr) []string {
	composite, ok := list.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var out []string
	for _, e := range composite.Elts {
		if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				out = append(out, text)
			}
		}
	}
	return out
}

func metricTable(found []metric) string {
	var b strings.Builder
	b.WriteString("| Metric | Type | Labels | Description |\n|---|---|---|---|\n")
	for _, m := range found {
		labels := ""
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		b.WriteString(row("`"+m.name+"`", strings.ToLower(m.kind), labels, m.help))
	}
	return b.String()
}
