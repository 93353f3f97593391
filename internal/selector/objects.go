package selector

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// objects makes Go structs available to expressions, with the JSON names of their fields.
// It inspects types by reflection once, and values when they are read. CEL's own extension
// for Go structs inspects the type for each value, which takes twice the time.
type objects struct {
	types.Adapter
	types.Provider

	byName map[string]*structType
	byType map[reflect.Type]*structType
}

// structType is the CEL type of a Go struct.
type structType struct {
	name   *types.Type
	fields map[string]*types.FieldType
}

// withObjects allows variables whose values are pointers to the example struct. It also
// registers the structs that it contains.
func withObjects(example reflect.Type) cel.EnvOption {
	return func(e *cel.Env) (*cel.Env, error) {
		o := &objects{
			Adapter: e.CELTypeAdapter(), Provider: e.CELTypeProvider(),
			byName: map[string]*structType{}, byType: map[reflect.Type]*structType{},
		}
		if _, err := o.describe(example); err != nil {
			return nil, err
		}
		e, err := cel.CustomTypeAdapter(o)(e)
		if err != nil {
			return nil, fmt.Errorf("adapting values: %w", err)
		}
		return cel.CustomTypeProvider(o)(e)
	}
}

func typeName(t reflect.Type) string { return "elemental." + t.Name() }

// describe registers a struct and all structs that it contains.
func (o *objects) describe(t reflect.Type) (*structType, error) {
	if known, ok := o.byType[t]; ok {
		return known, nil
	}
	s := &structType{
		name:   types.NewObjectType(typeName(t), traits.FieldTesterType|traits.IndexerType),
		fields: map[string]*types.FieldType{},
	}
	o.byType[t], o.byName[typeName(t)] = s, s
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			return nil, fmt.Errorf("field %s of %s has no JSON name", field.Name, t)
		}
		of, err := o.typeOf(field.Type)
		if err != nil {
			return nil, fmt.Errorf("field %s of %s: %w", field.Name, t, err)
		}
		s.fields[name] = &types.FieldType{
			Type:    of,
			IsSet:   func(target any) bool { f, ok := fieldOf(t, target, i); return ok && !f.IsZero() },
			GetFrom: func(target any) (any, error) { return o.read(t, target, i) },
		}
	}
	return s, nil
}

func (o *objects) typeOf(t reflect.Type) (*types.Type, error) {
	switch t.Kind() {
	case reflect.Bool:
		return types.BoolType, nil
	case reflect.Int, reflect.Int32, reflect.Int64:
		return types.IntType, nil
	case reflect.String:
		return types.StringType, nil
	case reflect.Slice:
		of, err := o.typeOf(t.Elem())
		if err != nil {
			return nil, err
		}
		return types.NewListType(of), nil
	case reflect.Map:
		if t == reflect.TypeFor[map[string]string]() {
			return types.NewMapType(types.StringType, types.StringType), nil
		}
	case reflect.Pointer:
		if t.Elem().Kind() == reflect.Struct {
			return o.typeOf(t.Elem())
		}
	case reflect.Struct:
		s, err := o.describe(t)
		if err != nil {
			return nil, err
		}
		return s.name, nil
	default:
	}
	return nil, fmt.Errorf("expressions have no type for %s", t)
}

// fieldOf returns field i of target, which must be a non-nil pointer to a t.
func fieldOf(t reflect.Type, target any, i int) (reflect.Value, bool) {
	v := reflect.ValueOf(target)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Type().Elem() != t {
		return reflect.Value{}, false
	}
	return v.Elem().Field(i), true
}

func (o *objects) read(t reflect.Type, target any, i int) (any, error) {
	f, ok := fieldOf(t, target, i)
	if !ok {
		return nil, fmt.Errorf("a %T is no %s", target, t)
	}
	return o.value(f), nil
}

// value returns the CEL value of a field. Structs become pointers, so that they are not
// copied. A nil pointer reads as the zero value.
func (o *objects) value(f reflect.Value) any {
	switch f.Kind() {
	case reflect.String:
		return types.String(f.String())
	case reflect.Int, reflect.Int32, reflect.Int64:
		return types.Int(f.Int())
	case reflect.Bool:
		return types.Bool(f.Bool())
	case reflect.Struct:
		return f.Addr().Interface()
	case reflect.Pointer:
		if f.IsNil() {
			return reflect.New(f.Type().Elem()).Interface()
		}
		return f.Interface()
	case reflect.Slice:
		values := make([]ref.Val, f.Len())
		for i := range values {
			values[i] = o.NativeToValue(o.value(f.Index(i)))
		}
		return types.NewRefValList(o, values)
	default:
		return f.Interface()
	}
}

// NativeToValue implements types.Adapter.
func (o *objects) NativeToValue(value any) ref.Val {
	switch value := value.(type) {
	case ref.Val:
		return value
	case map[string]string:
		return types.NewStringStringMap(o, value)
	}
	if t := reflect.TypeOf(value); t != nil && t.Kind() == reflect.Pointer {
		if s, ok := o.byType[t.Elem()]; ok {
			return &object{Adapter: o, value: value, is: s}
		}
	}
	return o.Adapter.NativeToValue(value)
}

// FindStructType implements types.Provider.
func (o *objects) FindStructType(name string) (*types.Type, bool) {
	if s, ok := o.byName[name]; ok {
		return types.NewTypeTypeWithParam(s.name), true
	}
	return o.Provider.FindStructType(name)
}

// FindStructFieldType implements types.Provider.
func (o *objects) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if s, ok := o.byName[name]; ok {
		f, ok := s.fields[field]
		return f, ok
	}
	return o.Provider.FindStructFieldType(name, field)
}

// object is the CEL value of a struct.
type object struct {
	types.Adapter

	value any
	is    *structType
}

var (
	_ traits.FieldTester = (*object)(nil)
	_ traits.Indexer     = (*object)(nil)
)

// ConvertToNative implements ref.Val.
func (v *object) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("%s can't be converted to %s", v.is.name, t)
}

// ConvertToType implements ref.Val.
func (v *object) ConvertToType(t ref.Type) ref.Val {
	return types.NewErr("%s can't be converted to %s", v.is.name, t.TypeName())
}

// Equal implements ref.Val.
func (v *object) Equal(other ref.Val) ref.Val {
	o, ok := other.(*object)
	return types.Bool(ok && reflect.DeepEqual(v.value, o.value))
}

// Type implements ref.Val.
func (v *object) Type() ref.Type { return v.is.name }

// Value implements ref.Val.
func (v *object) Value() any { return v.value }

// IsSet implements traits.FieldTester.
func (v *object) IsSet(field ref.Val) ref.Val {
	f, err := v.field(field)
	if err != nil {
		return err
	}
	return types.Bool(f.IsSet(v.value))
}

// Get implements traits.Indexer.
func (v *object) Get(field ref.Val) ref.Val {
	f, failure := v.field(field)
	if failure != nil {
		return failure
	}
	value, err := f.GetFrom(v.value)
	if err != nil {
		return types.WrapErr(err)
	}
	return v.NativeToValue(value)
}

func (v *object) field(name ref.Val) (*types.FieldType, ref.Val) {
	text, ok := name.(types.String)
	if !ok {
		return nil, types.MaybeNoSuchOverloadErr(name)
	}
	f, ok := v.is.fields[string(text)]
	if !ok {
		return nil, types.NewErr("no such field: %s", text)
	}
	return f, nil
}
