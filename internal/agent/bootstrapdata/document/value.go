package document

import (
	"math"
	"strconv"
	"strings"
)

// Kind is the type of a value.
type Kind int

// The kinds of values.
const (
	Null Kind = iota
	String
	Int
	Float
	Bool
	Time
	Binary
	List
	Map
)

// String returns the kind as error messages name it.
func (k Kind) String() string {
	return [...]string{"nothing", "a string", "a whole number", "a number", "a boolean", "a date", "binary data", "a list", "a mapping"}[k]
}

// Value is a node of a document. A YAML value has the type that PyYAML gives it.
type Value struct {
	Kind   Kind
	Line   int
	Text   string // of a scalar, as written in the document
	Int    int64
	Float  float64
	Bool   bool
	Items  []*Value
	Fields []Field // in document order, without earlier fields of the same name
}

// Field is an entry of a mapping.
type Field struct {
	Name  string
	Line  int
	Value *Value
}

// Set adds a field or replaces the field of the same name.
func (v *Value) Set(f Field) {
	for i := range v.Fields {
		if v.Fields[i].Name == f.Name {
			v.Fields[i] = f
			return
		}
	}
	v.Fields = append(v.Fields, f)
}

// Get returns the value of a field, or nil.
func (v *Value) Get(name string) *Value {
	for i := range v.Fields {
		if v.Fields[i].Name == name {
			return v.Fields[i].Value
		}
	}
	return nil
}

// PythonString returns Python's str() of a scalar, as cloud-init converts values
// to text.
func (v *Value) PythonString() string {
	switch v.Kind {
	case Null:
		return "None"
	case Bool:
		if v.Bool {
			return "True"
		}
		return "False"
	case Int:
		return strconv.FormatInt(v.Int, 10)
	case Float:
		form := byte('f')
		if abs := math.Abs(v.Float); abs >= 1e16 || abs < 1e-4 && abs > 0 {
			form = 'e' // Python uses the exponent from here on
		}
		text := strconv.FormatFloat(v.Float, form, -1, 64)
		if !strings.ContainsAny(text, ".eIN") {
			text += ".0"
		}
		return strings.NewReplacer("+Inf", "inf", "-Inf", "-inf", "NaN", "nan").Replace(text)
	default:
		return v.Text
	}
}

// IsTruthy returns Python's bool() of a value.
func (v *Value) IsTruthy() bool {
	switch v.Kind {
	case Null:
		return false
	case Bool:
		return v.Bool
	case Int:
		return v.Int != 0
	case Float:
		return v.Float != 0
	case List:
		return len(v.Items) > 0
	case Map:
		return len(v.Fields) > 0
	default:
		return v.Text != ""
	}
}

// IsTrue reports whether a boolean option is on, in any spelling that cloud-init
// accepts.
func (v *Value) IsTrue() bool {
	if v.Kind == Bool {
		return v.Bool
	}
	switch strings.ToLower(strings.TrimSpace(v.PythonString())) {
	case "true", "1", "on", "yes":
		return true
	}
	return false
}
