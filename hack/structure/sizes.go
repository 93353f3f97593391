package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

const (
	// maxFileBytes is for files of any kind.
	maxFileBytes    = 1 << 20
	maxFileLines    = 350
	maxPackageLines = 2500
	// maxAPILines is for a version of the API: by Kubernetes' convention all its kinds are
	// one package.
	maxAPILines = 5000
	maxMethods  = 30
)

// sizes counts lines and methods of Go files.
type sizes struct {
	files    []string
	packages map[string]int
	// methods counts methods by folder and type.
	methods map[string]int
}

func newSizes() *sizes {
	return &sizes{packages: map[string]int{}, methods: map[string]int{}}
}

// add counts one Go file. Generated files count for nothing, tests only as files.
func (s *sizes) add(name string, content []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parsing %s: %w", name, err)
	}
	if ast.IsGenerated(file) {
		return nil
	}
	lines, folder := bytes.Count(content, []byte("\n")), path.Dir(name)
	if lines > maxFileLines {
		s.files = append(s.files, fmt.Sprintf("%s has %d lines, more than %d: split it by topic", name, lines, maxFileLines))
	}
	if strings.HasSuffix(name, "_test.go") {
		return nil
	}
	s.packages[folder] += lines
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil && len(f.Recv.List) == 1 {
			s.methods[folder+"."+receiver(f.Recv.List[0].Type)]++
		}
	}
	return nil
}

// receiver returns the name of a receiver's type.
func receiver(expr ast.Expr) string {
	switch t := expr.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	default:
		return "?"
	}
}

// violations returns what exceeds a limit, sorted by check and name.
func (s *sizes) violations() []string {
	out := slices.Clone(s.files)
	for _, folder := range slices.Sorted(maps.Keys(s.packages)) {
		limit := maxPackageLines
		if strings.HasPrefix(folder, "api/") {
			limit = maxAPILines
		}
		if n := s.packages[folder]; n > limit {
			out = append(out, fmt.Sprintf("package %s has %d lines without tests, more than %d: split it", folder, n, limit))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.methods)) {
		if n := s.methods[name]; n > maxMethods {
			out = append(out, fmt.Sprintf("type %s has %d methods, more than %d: split it by what it knows", name, n, maxMethods))
		}
	}
	return out
}
