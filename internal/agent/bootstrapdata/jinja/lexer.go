package jinja

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Error says why a template cannot be rendered. Line counts from 1 within the
// text passed to Render.
type Error struct {
	Line   int
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: jinja: %s", e.Line, e.Reason) }

func errorAt(line int, format string, args ...any) error {
	return &Error{Line: line, Reason: fmt.Sprintf(format, args...)}
}

type chunkKind int

const (
	chunkText chunkKind = iota
	chunkOutput
	chunkBlock
)

// chunk is literal text, or the tokens between {{ and }} or between {% and %}.
type chunk struct {
	kind   chunkKind
	line   int
	text   string
	tokens []token
}

// isRaw reports whether the chunk is {% raw %}. trim_blocks keeps the line break after
// this block only.
func (c chunk) isRaw() bool { return len(c.tokens) == 1 && c.tokens[0].text == "raw" }

type tokenKind int

const (
	tokenName tokenKind = iota
	tokenString
	tokenInt
	tokenFloat
	tokenOp
)

type token struct {
	kind tokenKind
	text string
	line int
}

// nesting returns 1 for an opening bracket, -1 for a closing bracket, else 0.
func (t token) nesting() int {
	switch {
	case t.kind != tokenOp:
		return 0
	case t.text == "{" || t.text == "[" || t.text == "(":
		return 1
	case t.text == "}" || t.text == "]" || t.text == ")":
		return -1
	}
	return 0
}

// split divides a template into chunks and applies whitespace control and
// trim_blocks.
func split(src string) ([]chunk, error) {
	s := &splitter{src: strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(src), line: 1}
	for s.pos < len(s.src) {
		if err := s.next(); err != nil {
			return nil, err
		}
	}
	return s.chunks, nil
}

type splitter struct {
	src    string
	pos    int
	line   int
	chunks []chunk
	// stripNext is true after "-}}" or "-%}", which remove the white space that
	// follows.
	stripNext bool
}

func (s *splitter) advance(n int) {
	s.line += strings.Count(s.src[s.pos:s.pos+n], "\n")
	s.pos += n
}

func (s *splitter) text(text string) {
	if s.stripNext {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
		s.stripNext = false
	}
	if text != "" {
		s.chunks = append(s.chunks, chunk{kind: chunkText, line: s.line, text: text})
	}
}

func (s *splitter) next() error {
	rest := s.src[s.pos:]
	open := nextOpening(rest)
	if open < 0 {
		s.text(rest)
		s.advance(len(rest))
		return nil
	}
	text := rest[:open]
	if strings.HasPrefix(rest[open+2:], "-") {
		text = strings.TrimRightFunc(text, unicode.IsSpace)
	}
	s.text(text)
	s.advance(open)
	switch rest[open : open+2] {
	case "{#":
		return s.comment()
	case "{{":
		return s.tag(chunkOutput, "}}")
	default:
		return s.tag(chunkBlock, "%}")
	}
}

func nextOpening(text string) int {
	for i := 0; i+1 < len(text); i++ {
		if text[i] == '{' && (text[i+1] == '{' || text[i+1] == '%' || text[i+1] == '#') {
			return i
		}
	}
	return -1
}

func (s *splitter) comment() error {
	end := strings.Index(s.src[s.pos:], "#}")
	if end < 0 {
		return errorAt(s.line, "comment {# is never closed with #}; write shell text such as ${#array[@]} inside {%% raw %%}")
	}
	s.skipTag(s.src[s.pos+end-1] == '-', end+2, true)
	return nil
}

// skipTag advances past the n bytes that end a tag. strip removes the white space after
// it, trim removes one line break.
func (s *splitter) skipTag(strip bool, n int, trim bool) {
	s.advance(n)
	s.stripNext = strip
	if trim && !strip && strings.HasPrefix(s.src[s.pos:], "\n") {
		s.advance(1)
	}
}

func (s *splitter) tag(kind chunkKind, closing string) error {
	start := s.line
	s.advance(2)
	if strings.HasPrefix(s.src[s.pos:], "-") || (kind == chunkBlock && strings.HasPrefix(s.src[s.pos:], "+")) {
		s.advance(1)
	}
	c := chunk{kind: kind, line: start}
	depth := 0
	for {
		s.advance(len(s.src[s.pos:]) - len(strings.TrimLeftFunc(s.src[s.pos:], unicode.IsSpace)))
		rest := s.src[s.pos:]
		if rest == "" {
			return errorAt(start, "tag is never closed with %s", closing)
		}
		if depth == 0 {
			if strings.HasPrefix(rest, closing) {
				s.skipTag(false, 2, kind == chunkBlock && !c.isRaw())
				break
			}
			if rest[0] == '-' && strings.HasPrefix(rest[1:], closing) {
				s.skipTag(true, 3, kind == chunkBlock)
				break
			}
			if kind == chunkBlock && rest[0] == '+' && strings.HasPrefix(rest[1:], closing) {
				s.skipTag(false, 3, false)
				break
			}
		}
		tok, n, err := lex(rest, s.line)
		if err != nil {
			return err
		}
		depth += tok.nesting()
		c.tokens = append(c.tokens, tok)
		s.advance(n)
	}
	if kind == chunkBlock && c.isRaw() {
		return s.raw(start)
	}
	s.chunks = append(s.chunks, c)
	return nil
}

// raw adds everything before {% endraw %} as literal text.
func (s *splitter) raw(start int) error {
	for at := s.pos; ; {
		open := strings.Index(s.src[at:], "{%")
		if open < 0 {
			return errorAt(start, "{%% raw %%} is never closed with {%% endraw %%}")
		}
		open += at
		inner := s.src[open+2:]
		end := strings.Index(inner, "%}")
		if end < 0 || strings.Trim(inner[:end], "-+ \t\n") != "endraw" {
			at = open + 2
			continue
		}
		text := s.src[s.pos:open]
		if strings.HasPrefix(inner, "-") {
			text = strings.TrimRightFunc(text, unicode.IsSpace)
		}
		s.text(text)
		s.advance(open - s.pos)
		s.skipTag(strings.HasSuffix(inner[:end], "-"), 2+end+2, !strings.HasSuffix(inner[:end], "+"))
		return nil
	}
}

func lex(text string, line int) (token, int, error) {
	c, size := utf8.DecodeRuneInString(text)
	switch {
	case c == '"' || c == '\'':
		return lexString(text, line)
	case c >= '0' && c <= '9':
		return lexNumber(text, line)
	case c == '_' || unicode.IsLetter(c):
		n := size
		for n < len(text) {
			r, w := utf8.DecodeRuneInString(text[n:])
			if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
				break
			}
			n += w
		}
		return token{kind: tokenName, text: text[:n], line: line}, n, nil
	}
	for _, op := range []string{"==", "!=", "<=", ">=", "//", "**"} {
		if strings.HasPrefix(text, op) {
			return token{kind: tokenOp, text: op, line: line}, 2, nil
		}
	}
	if strings.ContainsRune("+-*/%~<>()[]{}.,:|=", c) {
		return token{kind: tokenOp, text: text[:1], line: line}, 1, nil
	}
	return token{}, 0, errorAt(line, "unexpected character %q", c)
}

func lexNumber(text string, line int) (token, int, error) {
	n, kind := 0, tokenInt
	digits := func() {
		for n < len(text) && (text[n] >= '0' && text[n] <= '9' || text[n] == '_') {
			n++
		}
	}
	digits()
	if n+1 < len(text) && text[n] == '.' && text[n+1] >= '0' && text[n+1] <= '9' {
		kind = tokenFloat
		n++
		digits()
	}
	return token{kind: kind, text: strings.ReplaceAll(text[:n], "_", ""), line: line}, n, nil
}

func lexString(text string, line int) (token, int, error) {
	quote := text[0]
	var out strings.Builder
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case quote:
			return token{kind: tokenString, text: out.String(), line: line}, i + 1, nil
		case '\\':
			i++
			if i == len(text) {
				break
			}
			if plain := strings.IndexByte(`ntr\'"`, text[i]); plain >= 0 {
				out.WriteByte("\n\t\r\\'\""[plain])
				continue
			}
			out.WriteByte('\\')
			out.WriteByte(text[i])
		default:
			out.WriteByte(text[i])
		}
	}
	return token{}, 0, errorAt(line, "string is never closed with %c", quote)
}
