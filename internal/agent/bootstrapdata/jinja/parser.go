package jinja

import (
	"slices"
	"strconv"
)

// maxDepth limits the nesting of expressions and blocks, so that a hostile
// template cannot exhaust the stack.
const maxDepth = 100

type parser struct {
	chunks []chunk
	at     int
	tokens []token
	pos    int
	line   int
	depth  int
}

// parse returns the nodes of a whole template.
func parse(src string) ([]node, error) {
	chunks, err := split(src)
	if err != nil {
		return nil, err
	}
	p := &parser{chunks: chunks}
	nodes, end, err := p.body()
	if err != nil {
		return nil, err
	}
	if end != "" {
		return nil, errorAt(p.line, "%q has no block that it could end", end)
	}
	return nodes, nil
}

// body parses nodes up to one of the tags in ends, or up to the end of the template
// without ends. It also returns the tag that it found.
func (p *parser) body(ends ...string) ([]node, string, error) {
	p.depth++
	if p.depth > maxDepth {
		return nil, "", errorAt(p.line, "blocks are nested deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	opened := p.line
	var nodes []node
	for p.at < len(p.chunks) {
		c := p.chunks[p.at]
		p.at++
		p.line = c.line
		switch c.kind {
		case chunkText:
			nodes = append(nodes, textNode(c.text))
			continue
		case chunkOutput:
			p.tokens, p.pos = c.tokens, 0
			e, err := p.whole()
			if err != nil {
				return nil, "", err
			}
			nodes = append(nodes, outputNode{e, c.line})
			continue
		case chunkBlock:
		}
		p.tokens, p.pos = c.tokens, 0
		name, err := p.name()
		if err != nil {
			return nil, "", err
		}
		switch name {
		case "elif", "else", "endif", "endfor", "endset":
			if slices.Contains(ends, name) {
				return nodes, name, nil
			}
			return nil, "", errorAt(c.line, "unexpected {%% %s %%}", name)
		}
		n, err := p.statement(name, c.line)
		if err != nil {
			return nil, "", err
		}
		nodes = append(nodes, n)
	}
	if len(ends) > 0 {
		return nil, "", errorAt(opened, "block is never closed with {%% %s %%}", ends[len(ends)-1])
	}
	return nodes, "", nil
}

func (p *parser) statement(name string, line int) (node, error) {
	switch name {
	case "if":
		return p.ifStatement()
	case "for":
		return p.forStatement(line)
	case "set":
		return p.setStatement(line)
	case "do":
		e, err := p.whole()
		return doNode{e, line}, err
	}
	return nil, errorAt(line, "{%% %s %%} is not supported here; supported are if, for, set, do and raw", name)
}

func (p *parser) ifStatement() (node, error) {
	n := &ifNode{}
	for {
		cond, err := p.whole()
		if err != nil {
			return nil, err
		}
		line := p.line
		body, end, err := p.body("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		n.branches = append(n.branches, branch{cond, body, line})
		if end == "elif" {
			continue
		}
		if end == "else" {
			if err := p.done(); err != nil {
				return nil, err
			}
			if n.otherwise, _, err = p.body("endif"); err != nil {
				return nil, err
			}
		}
		return n, p.done()
	}
}

func (p *parser) forStatement(line int) (node, error) {
	n := &forNode{line: line}
	for {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		n.names = append(n.names, name)
		if !p.accept(",") {
			break
		}
	}
	if !p.accept("in") {
		return nil, errorAt(line, "for needs the form {%% for name in list %%}")
	}
	var err error
	if n.list, err = p.or(); err != nil {
		return nil, err
	}
	if p.accept("if") {
		if n.filter, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if err := p.done(); err != nil {
		return nil, err
	}
	body, end, err := p.body("else", "endfor")
	if err != nil {
		return nil, err
	}
	n.body = body
	if end == "else" {
		if n.otherwise, _, err = p.body("endfor"); err != nil {
			return nil, err
		}
	}
	return n, p.done()
}

func (p *parser) setStatement(line int) (node, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	n := &setNode{name: name, line: line}
	if p.accept("=") {
		n.value, err = p.whole()
		return n, err
	}
	if err := p.done(); err != nil {
		return nil, err
	}
	if n.body, _, err = p.body("endset"); err != nil {
		return nil, err
	}
	return n, p.done()
}

func (p *parser) peek() (token, bool) {
	if p.pos < len(p.tokens) {
		return p.tokens[p.pos], true
	}
	return token{}, false
}

// accept consumes the next token if it is the given operator or keyword.
func (p *parser) accept(text string) bool {
	t, ok := p.peek()
	if ok && t.kind != tokenString && t.text == text {
		p.pos++
		return true
	}
	return false
}

func (p *parser) expect(text string) error {
	if p.accept(text) {
		return nil
	}
	if t, ok := p.peek(); ok {
		return errorAt(t.line, "expected %q, found %q", text, t.text)
	}
	return errorAt(p.line, "expected %q at the end of the tag", text)
}

func (p *parser) name() (string, error) {
	t, ok := p.peek()
	if !ok {
		return "", errorAt(p.line, "expected a name at the end of the tag")
	}
	if t.kind != tokenName {
		return "", errorAt(t.line, "expected a name, found %q", t.text)
	}
	p.pos++
	return t.text, nil
}

func (p *parser) done() error {
	if t, ok := p.peek(); ok {
		return errorAt(t.line, "unexpected %q", t.text)
	}
	return nil
}

// whole parses an expression and fails unless the tag ends after it.
func (p *parser) whole() (expr, error) {
	e, err := p.expression()
	if err != nil {
		return nil, err
	}
	return e, p.done()
}

func (p *parser) literal(t token) (expr, error) {
	switch t.kind {
	case tokenString:
		return literal{t.text}, nil
	case tokenInt:
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			return nil, errorAt(t.line, "number %s is out of range", t.text)
		}
		return literal{n}, nil
	default:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			return nil, errorAt(t.line, "number %s is out of range", t.text)
		}
		return literal{f}, nil
	}
}
