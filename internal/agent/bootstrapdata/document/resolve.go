package document

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// The patterns of plain scalars in YAML 1.1, as in PyYAML (yaml.org/type).
// PyYAML does not treat y and n as booleans.
var (
	intForm   = regexp.MustCompile(`^[-+]?(0b[0-1_]+|0[0-7_]+|(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F_]+|[1-9][0-9_]*(?::[0-5]?[0-9])+)$`)
	floatForm = regexp.MustCompile(`^([-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
	timeForm  = regexp.MustCompile(`^(\d{4}-\d\d-\d\d|\d{4}-\d\d?-\d\d?(?:[Tt]|[ \t]+)\d\d?:\d\d:\d\d(?:\.\d*)?(?:[ \t]*(?:Z|[-+]\d\d?(?::\d\d)?))?)$`)
)

// resolve sets the type that YAML 1.1 gives a plain scalar.
func (v *Value) resolve() {
	switch v.Text {
	case "", "~", "null", "Null", "NULL":
		v.Kind = Null
		return
	case "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		v.Kind, v.Bool = Bool, true
		return
	case "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		v.Kind = Bool
		return
	}
	switch {
	case intForm.MatchString(v.Text):
		v.Kind = Int
		v.Int, _ = yamlInt(v.Text) // out of range: see check
	case floatForm.MatchString(v.Text):
		v.Kind, v.Float = Float, yamlFloat(v.Text)
	case timeForm.MatchString(v.Text):
		v.Kind = Time
	}
}

func yamlInt(text string) (int64, error) {
	text = strings.ReplaceAll(text, "_", "")
	sign := int64(1)
	if text[0] == '-' {
		sign = -1
	}
	text = strings.TrimLeft(text, "+-")
	switch {
	case text == "0" || text == "":
		return 0, nil
	case strings.HasPrefix(text, "0b"):
		n, err := strconv.ParseInt(text[2:], 2, 64)
		return sign * n, err
	case strings.HasPrefix(text, "0x"):
		n, err := strconv.ParseInt(text[2:], 16, 64)
		return sign * n, err
	case text[0] == '0':
		n, err := strconv.ParseInt(text, 8, 64)
		return sign * n, err
	}
	var n int64
	for part := range strings.SplitSeq(text, ":") {
		digit, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			return 0, err
		}
		if n > (math.MaxInt64-digit)/60 {
			return 0, strconv.ErrRange
		}
		n = n*60 + digit
	}
	return sign * n, nil
}

func yamlFloat(text string) float64 {
	text = strings.ToLower(strings.ReplaceAll(text, "_", ""))
	sign := 1.0
	if text[0] == '-' {
		sign = -1
	}
	text = strings.TrimLeft(text, "+-")
	switch text {
	case ".inf":
		return math.Inf(int(sign))
	case ".nan":
		return math.NaN()
	}
	var f float64
	for part := range strings.SplitSeq(text, ":") {
		digit, _ := strconv.ParseFloat(part, 64) // the form was matched
		f = f*60 + digit
	}
	return sign * f
}
