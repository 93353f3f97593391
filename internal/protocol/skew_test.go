package protocol_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	first "github.com/capi-elemental/cluster-api-provider-elemental/test/harness/traffic/testdata/v0.1.0/protocol"
)

// message is a message that v0.1.0 knows: its type there, and the type now.
type message struct {
	then, now reflect.Type
}

func messages() map[string]message {
	all := map[string]message{}
	for _, pair := range [][2]any{
		{first.EnrolRequest{}, protocol.EnrolRequest{}},
		{first.EnrolResponse{}, protocol.EnrolResponse{}},
		{first.Plan{}, protocol.Plan{}},
		{first.Report{}, protocol.Report{}},
		{first.HostLog{}, protocol.HostLog{}},
		{first.RotateRequest{}, protocol.RotateRequest{}},
		{first.EtcdSnapshotGrantRequest{}, protocol.EtcdSnapshotGrantRequest{}},
		{first.EtcdSnapshotGrant{}, protocol.EtcdSnapshotGrant{}},
		{first.EtcdSnapshotFetchRequest{}, protocol.EtcdSnapshotFetchRequest{}},
		{first.EtcdSnapshotFetchGrant{}, protocol.EtcdSnapshotFetchGrant{}},
		{first.Problem{}, protocol.Problem{}},
	} {
		m := message{then: reflect.TypeOf(pair[0]), now: reflect.TypeOf(pair[1])}
		all[m.now.Name()] = m
	}
	return all
}

// v0.1.0 decodes messages of this version as it did, by json.Unmarshal, and finds each field that it knows.
func TestFirstReleaseUnderstandsThisOne(t *testing.T) {
	t.Parallel()
	for name, m := range messages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			sent := encode(t, filled(m.now))
			seen := reflect.New(m.then)
			g.Expect(json.Unmarshal(sent, seen.Interface())).To(Succeed())
			g.Expect(missing(name, seen.Elem())).To(BeEmpty())
			g.Expect(differences(name, decoded(t, encode(t, seen.Interface())), decoded(t, sent))).To(BeEmpty())
		})
	}
}

// This version finds each field in messages of v0.1.0, and loses nothing.
func TestThisReleaseUnderstandsTheFirst(t *testing.T) {
	t.Parallel()
	for name, m := range messages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			sent := encode(t, filled(m.then))
			seen := reflect.New(m.now).Interface()
			decoder := json.NewDecoder(bytes.NewReader(sent))
			decoder.DisallowUnknownFields()
			g.Expect(decoder.Decode(seen)).To(Succeed())
			g.Expect(encode(t, seen)).To(MatchJSON(sent))
		})
	}
}

// What v0.1.0 calls a path, a header, a kind of operation or problem, or a capability still has that name.
func TestNamesOfTheFirstRelease(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	then, now := names(t, filepath.Join("..", "..", "test", "harness", "traffic", "testdata", "v0.1.0", "protocol")), names(t, ".")
	g.Expect(then).To(HaveKeyWithValue("PathPlan", `"/v1/plan"`))
	for name, value := range then {
		g.Expect(now[name]).To(Equal(value), name)
	}
}

// filled returns a pointer to a value of a type, in which each field has a value of its own.
func filled(of reflect.Type) any {
	value, next := reflect.New(of), 0
	fill(value.Elem(), &next)
	return value.Interface()
}

func fill(v reflect.Value, next *int) {
	*next++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), next)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(*next), 0).UTC()))
			return
		}
		for _, field := range v.Fields() {
			fill(field, next)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), next)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, next)
		fill(value, next)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprintf("value-%d", *next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*next))
	case reflect.Uint8:
		v.SetUint(uint64(*next%255 + 1))
	case reflect.Uint32:
		v.SetUint(uint64(*next))
	default:
		v.SetInt(int64(*next))
	}
}

// missing returns the fields that have no value.
func missing(path string, v reflect.Value) []string {
	if v.IsZero() {
		return []string{path}
	}
	switch v.Kind() {
	case reflect.Pointer:
		return missing(path, v.Elem())
	case reflect.Slice:
		return missing(path, v.Index(0))
	case reflect.Struct:
		var all []string
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				all = append(all, missing(path+"."+v.Type().Field(i).Name, v.Field(i))...)
			}
		}
		return all
	default:
		return nil
	}
}

// differences returns where a message has another value than one that has more fields.
func differences(path string, message, more any) []string {
	switch message := message.(type) {
	case map[string]any:
		other, _ := more.(map[string]any)
		var all []string
		for name, value := range message {
			all = append(all, differences(path+"."+name, value, other[name])...)
		}
		return all
	case []any:
		other, _ := more.([]any)
		if len(other) == len(message) {
			var all []string
			for i := range message {
				all = append(all, differences(path, message[i], other[i])...)
			}
			return all
		}
	}
	if reflect.DeepEqual(message, more) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %v and %v", path, message, more)}
}

func encode(t *testing.T, value any) []byte {
	t.Helper()
	raw, err := json.Marshal(value)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return raw
}

func decoded(t *testing.T, raw []byte) (value any) {
	t.Helper()
	NewWithT(t).Expect(json.Unmarshal(raw, &value)).To(Succeed())
	return value
}

// names returns the constants of a package that are strings.
func names(t *testing.T, folder string) map[string]string {
	t.Helper()
	g := NewWithT(t)
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	g.Expect(err).NotTo(HaveOccurred())
	all := map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		g.Expect(err).NotTo(HaveOccurred())
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i := range spec.Values {
				if literal, ok := spec.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING {
					all[spec.Names[i].Name] = literal.Value
				}
			}
			return true
		})
	}
	return all
}

// An empty list of files and an unknown one are different on the wire.
func TestFilesThatAreNotKnown(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	for _, test := range []struct {
		files []protocol.File
		want  string
	}{{nil, `{}`}, {[]protocol.File{}, `{"files":[]}`}} {
		raw := encode(t, protocol.Desired{Files: test.files})
		g.Expect(string(raw)).To(Equal(test.want))
		var back protocol.Desired
		g.Expect(json.Unmarshal(raw, &back)).To(Succeed())
		g.Expect(back.Files == nil).To(Equal(test.files == nil))
	}
}
