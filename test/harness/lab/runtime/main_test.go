package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestDropIn(t *testing.T) {
	const process = `{"args":["sh"],"capabilities":{"bounding":["CAP_KILL","CAP_SYS_RESOURCE"],"effective":["CAP_SYS_RESOURCE"],"ambient":null},` +
		`"rlimits":[{"type":"RLIMIT_NOFILE","hard":18446744073709551615,"soft":1024}]}`
	const want = `{"args":["sh"],"capabilities":{"bounding":["CAP_KILL"],"effective":[],"ambient":null},` +
		`"rlimits":[{"type":"RLIMIT_NOFILE","hard":18446744073709551615,"soft":1024}]}`
	for _, tt := range []struct {
		name, content, want string
		path                []string
	}{
		{"a process", process, want, nil},
		{"a container", `{"ociVersion":"1.0.2","process":` + process + `}`, `{"ociVersion":"1.0.2","process":` + want + `}`, []string{"process"}},
		{"nothing requested", `{"process":{"args":["sh"]}}`, `{"process":{"args":["sh"]}}`, []string{"process"}},
		{"no process", `{"ociVersion":"1.0.2"}`, `{"ociVersion":"1.0.2"}`, []string{"process"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.json")
			if err := os.WriteFile(file, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := dropIn(file, []string{"SYS_RESOURCE"}, tt.path...); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !equalJSON(t, string(got), tt.want) {
				t.Errorf("got %s", got)
			}
		})
	}
	if err := dropIn(filepath.Join(t.TempDir(), "missing"), nil); err == nil {
		t.Error("a missing file was accepted")
	}
}

// equalJSON compares two documents without regard to the order of fields, and numbers by their digits.
func equalJSON(t *testing.T, a, b string) bool {
	t.Helper()
	decode := func(text string) (document any) {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&document); err != nil {
			t.Fatal(err)
		}
		return document
	}
	return reflect.DeepEqual(decode(a), decode(b))
}
