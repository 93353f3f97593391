package jinja

// expression parses "a if cond else b", which has the lowest precedence.
func (p *parser) expression() (expr, error) {
	p.depth++
	if p.depth > maxDepth {
		return nil, errorAt(p.line, "expressions are nested deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	e, err := p.or()
	if err != nil {
		return nil, err
	}
	for p.accept("if") {
		cond, err := p.or()
		if err != nil {
			return nil, err
		}
		c := conditional{then: e, cond: cond}
		if p.accept("else") {
			if c.otherwise, err = p.expression(); err != nil {
				return nil, err
			}
		}
		e = c
	}
	return e, nil
}

// infix parses operands that are joined by ops, which are left-associative.
func (p *parser) infix(operand func() (expr, error), ops ...string) (expr, error) {
	left, err := operand()
	if err != nil {
		return nil, err
	}
	for {
		op := ""
		for _, candidate := range ops {
			if p.accept(candidate) {
				op = candidate
				break
			}
		}
		if op == "" {
			return left, nil
		}
		right, err := operand()
		if err != nil {
			return nil, err
		}
		left = binary{op, left, right}
	}
}

func (p *parser) or() (expr, error)  { return p.infix(p.and, "or") }
func (p *parser) and() (expr, error) { return p.infix(p.not, "and") }

func (p *parser) not() (expr, error) {
	if p.accept("not") {
		e, err := p.not()
		return negation{e}, err
	}
	return p.comparison()
}

func (p *parser) comparison() (expr, error) {
	left, err := p.infix(p.concat, "+", "-")
	if err != nil {
		return nil, err
	}
	for {
		op := ""
		for _, candidate := range []string{"==", "!=", "<=", ">=", "<", ">", "in"} {
			if p.accept(candidate) {
				op = candidate
				break
			}
		}
		if op == "" && p.pos+1 < len(p.tokens) && p.tokens[p.pos].text == "not" && p.tokens[p.pos+1].text == "in" {
			p.pos += 2
			op = "not in"
		}
		if op == "" {
			return left, nil
		}
		right, err := p.infix(p.concat, "+", "-")
		if err != nil {
			return nil, err
		}
		left = binary{op, left, right}
	}
}

func (p *parser) concat() (expr, error)  { return p.infix(p.product, "~") }
func (p *parser) product() (expr, error) { return p.infix(p.unary, "*", "//", "/", "%") }

func (p *parser) unary() (expr, error) {
	if p.accept("-") {
		e, err := p.unary()
		return binary{"-", literal{int64(0)}, e}, err
	}
	if p.accept("+") {
		return p.unary()
	}
	return p.postfix()
}

// postfix parses a primary expression followed by attributes, indices, calls, filters
// and tests.
func (p *parser) postfix() (expr, error) {
	e, err := p.primary()
	for err == nil {
		switch {
		case p.accept("."):
			e, err = p.attribute(e)
		case p.accept("["):
			var key expr
			if key, err = p.expression(); err == nil {
				e, err = index{e, key}, p.expect("]")
			}
		case p.accept("("):
			c := call{target: e}
			c.args, err = p.arguments()
			e = c
		case p.accept("|"):
			e, err = p.filter(e)
		case p.accept("is"):
			e, err = p.test(e)
		default:
			return e, nil
		}
	}
	return nil, err
}

func (p *parser) attribute(of expr) (expr, error) {
	t, ok := p.peek()
	if ok && t.kind == tokenInt {
		p.pos++
		key, err := p.literal(t)
		return index{of, key}, err
	}
	name, err := p.name()
	return index{of, literal{name}}, err
}

func (p *parser) filter(of expr) (expr, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	f, known := filterFor(name)
	if !known {
		return nil, errorAt(p.line, "no filter named %q", name)
	}
	n := filtered{input: of, filter: f}
	if p.accept("(") {
		n.args, err = p.arguments()
	}
	return n, err
}

func (p *parser) test(of expr) (expr, error) {
	negated := p.accept("not")
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	t, known := testFor(name)
	if !known {
		return nil, errorAt(p.line, "no test named %q", name)
	}
	n := tested{input: of, test: t}
	switch next, ok := p.peek(); {
	case p.accept("("):
		if n.args, err = p.arguments(); err != nil {
			return nil, err
		}
	case ok && next.kind != tokenOp && next.text != "and" && next.text != "or" && next.text != "else" && next.text != "if" && next.text != "is":
		arg, err := p.primary()
		if err != nil {
			return nil, err
		}
		n.args = []expr{arg}
	}
	if negated {
		return negation{n}, nil
	}
	return n, nil
}

// arguments parses up to the closing parenthesis. A keyword argument is an error,
// because filters take their arguments by position only.
func (p *parser) arguments() ([]expr, error) {
	var args []expr
	for !p.accept(")") {
		if len(args) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		if p.pos+1 < len(p.tokens) && p.tokens[p.pos].kind == tokenName && p.tokens[p.pos+1].text == "=" {
			return nil, errorAt(p.line, "keyword argument %q is not supported; give it by position", p.tokens[p.pos].text)
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		args = append(args, e)
	}
	return args, nil
}

func (p *parser) primary() (expr, error) {
	t, ok := p.peek()
	if !ok {
		return nil, errorAt(p.line, "expected an expression at the end of the tag")
	}
	p.pos++
	switch {
	case t.kind == tokenName:
		switch t.text {
		case "true", "True":
			return literal{true}, nil
		case "false", "False":
			return literal{false}, nil
		case "none", "None":
			return literal{nil}, nil
		}
		return variable(t.text), nil
	case t.kind != tokenOp:
		return p.literal(t)
	case t.text == "(":
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		return e, p.expect(")")
	case t.text == "[":
		return p.list()
	case t.text == "{":
		return p.dict()
	}
	return nil, errorAt(t.line, "unexpected %q where an expression should start", t.text)
}

func (p *parser) list() (expr, error) {
	var l list
	for !p.accept("]") {
		if len(l) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
			if p.accept("]") {
				break
			}
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		l = append(l, e)
	}
	return l, nil
}

func (p *parser) dict() (expr, error) {
	var d dict
	for !p.accept("}") {
		if len(d) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expect(":"); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		d = append(d, [2]expr{key, value})
	}
	return d, nil
}
