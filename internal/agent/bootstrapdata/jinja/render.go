package jinja

import (
	"errors"
	"fmt"
	"sort"
	"strings"
)

// Limits of one rendering. Templates of bootstrap data stay far below them.
const (
	maxOutput = 16 << 20
	maxSteps  = 1 << 20
)

// MissingPrefix is the prefix that cloud-init writes before the name of an undefined
// variable.
const MissingPrefix = "CI_MISSING_JINJA_VAR/"

// Render renders src. vars is a tree of map[string]any, []any, string, int64,
// float64, bool and nil; Render does not change it. missing lists the names of the
// undefined variables that out contains with MissingPrefix, sorted, each once.
//
// An error is an *Error, and out is empty. As in cloud-init, a line break at the end
// of src is kept, and all line breaks become "\n".
func Render(src string, vars map[string]any) (out string, missing []string, err error) {
	final := ""
	if cut, ok := strings.CutSuffix(src, "\n"); ok {
		src, final = strings.TrimSuffix(cut, "\r"), "\n"
	}
	nodes, err := parse(src)
	if err != nil {
		return "", nil, err
	}
	r := &renderer{scope: &scope{vars: vars}, missing: map[string]bool{}}
	if err := r.body(nodes); err != nil {
		return "", nil, err
	}
	for name := range r.missing {
		missing = append(missing, name)
	}
	sort.Strings(missing)
	return r.out.String() + final, missing, nil
}

// undefined is the value of a name that does not exist.
type undefined struct{ name string }

func (u undefined) String() string { return MissingPrefix + u.name }

type scope struct {
	vars   map[string]any
	parent *scope
}

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

type renderer struct {
	out     strings.Builder
	scope   *scope
	steps   int
	missing map[string]bool
}

func (r *renderer) step() error {
	r.steps++
	if r.steps > maxSteps {
		return fmt.Errorf("template takes more than %d steps", maxSteps)
	}
	return nil
}

func (r *renderer) write(text string) error {
	if r.out.Len()+len(text) > maxOutput {
		return fmt.Errorf("output is larger than %d bytes", maxOutput)
	}
	r.out.WriteString(text)
	return nil
}

type node interface {
	render(r *renderer) error
}

func (r *renderer) body(nodes []node) error {
	for _, n := range nodes {
		if err := n.render(r); err != nil {
			return err
		}
	}
	return nil
}

// located adds the line of a tag to an error that has no line.
func located(line int, err error) error {
	if err == nil {
		return nil
	}
	if known := (*Error)(nil); errors.As(err, &known) {
		return err
	}
	return &Error{Line: line, Reason: err.Error()}
}

type textNode string

func (n textNode) render(r *renderer) error { return located(1, r.write(string(n))) }

type outputNode struct {
	value expr
	line  int
}

func (n outputNode) render(r *renderer) error {
	v, err := r.eval(n.value)
	if err != nil {
		return located(n.line, err)
	}
	if u, ok := v.(undefined); ok {
		r.missing[u.name] = true
	}
	return located(n.line, r.write(str(v)))
}

type branch struct {
	cond expr
	body []node
	line int
}

type ifNode struct {
	branches  []branch
	otherwise []node
}

func (n *ifNode) render(r *renderer) error {
	for _, b := range n.branches {
		v, err := r.eval(b.cond)
		if err != nil {
			return located(b.line, err)
		}
		if truth(v) {
			return r.body(b.body)
		}
	}
	return r.body(n.otherwise)
}

type forNode struct {
	names           []string
	list            expr
	filter          expr
	body, otherwise []node
	line            int
}

func (n *forNode) render(r *renderer) error {
	v, err := r.eval(n.list)
	if err != nil {
		return located(n.line, err)
	}
	items, err := iterate(v)
	if err != nil {
		return located(n.line, err)
	}
	outer := r.scope
	defer func() { r.scope = outer }()
	var kept []map[string]any
	for _, item := range items {
		vars, err := n.bind(item)
		if err != nil {
			return located(n.line, err)
		}
		r.scope = &scope{vars: vars, parent: outer}
		if n.filter != nil {
			v, err := r.eval(n.filter)
			if err != nil {
				return located(n.line, err)
			}
			if !truth(v) {
				continue
			}
		}
		kept = append(kept, vars)
	}
	if len(kept) == 0 {
		r.scope = outer
		return r.body(n.otherwise)
	}
	for i, vars := range kept {
		vars["loop"] = map[string]any{
			"index": int64(i + 1), "index0": int64(i), "first": i == 0, "last": i == len(kept)-1,
			"length": int64(len(kept)), "revindex": int64(len(kept) - i), "revindex0": int64(len(kept) - i - 1),
		}
		r.scope = &scope{vars: vars, parent: outer}
		if err := r.step(); err != nil {
			return located(n.line, err)
		}
		if err := r.body(n.body); err != nil {
			return err
		}
	}
	return nil
}

func (n *forNode) bind(item any) (map[string]any, error) {
	if len(n.names) == 1 {
		return map[string]any{n.names[0]: item}, nil
	}
	parts, ok := item.([]any)
	if !ok || len(parts) != len(n.names) {
		return nil, fmt.Errorf("cannot unpack %s into %d names", typeName(item), len(n.names))
	}
	vars := map[string]any{}
	for i, name := range n.names {
		vars[name] = parts[i]
	}
	return vars, nil
}

type setNode struct {
	name  string
	value expr
	body  []node
	line  int
}

func (n *setNode) render(r *renderer) error {
	var v any
	if n.value != nil {
		var err error
		if v, err = r.eval(n.value); err != nil {
			return located(n.line, err)
		}
	} else {
		inner := &renderer{scope: r.scope, steps: r.steps, missing: r.missing}
		if err := inner.body(n.body); err != nil {
			return err
		}
		r.steps = inner.steps
		v = inner.out.String()
	}
	// A new scope, because the variables of the caller must not change.
	r.scope = &scope{vars: map[string]any{n.name: v}, parent: r.scope}
	return nil
}

type doNode struct {
	value expr
	line  int
}

func (n doNode) render(r *renderer) error {
	_, err := r.eval(n.value)
	return located(n.line, err)
}
