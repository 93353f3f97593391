package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const header = "| Field | Value | Description |\n|---|---|---|\n"

type schema = apiextensionsv1.JSONSchemaProps

// fieldTables returns a table "fields KIND" for each CRD of the folder, and one
// of the status alone, "status KIND".
func fieldTables(folder string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	tables := map[string]string{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(raw, &crd); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", file, err)
		}
		if len(crd.Spec.Versions) != 1 {
			return nil, fmt.Errorf("%s has %d versions, want 1", file, len(crd.Spec.Versions))
		}
		root := *crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		kind := crd.Spec.Names.Kind
		tables["fields "+kind] = header + fields(root, "spec") + fields(root, "status")
		tables["status "+kind] = header + fields(root, "status")
	}
	return tables, nil
}

// fields returns a row for each field of spec or status.
func fields(root schema, part string) string {
	var b strings.Builder
	writeFields(&b, part, root.Properties[part])
	return b.String()
}

// writeFields writes a row for each field below path.
func writeFields(b *strings.Builder, path string, parent schema) {
	for _, name := range slices.Sorted(maps.Keys(parent.Properties)) {
		s := parent.Properties[name]
		field := path + "." + name
		// Conditions have the fields of every Kubernetes API.
		if name == "conditions" {
			b.WriteString(row("`"+field+"`", "list", s.Description))
			continue
		}
		b.WriteString(row("`"+field+"`", value(s), s.Description))
		switch {
		case s.Type == "array" && s.Items != nil && s.Items.Schema != nil:
			writeFields(b, field+"[]", *s.Items.Schema)
		case s.Type == "object":
			writeFields(b, field, s)
		}
	}
}

// value describes the type of a field, its limits and its default.
func value(s schema) string {
	kind := s.Type
	switch {
	case s.XIntOrString:
		kind = "quantity"
	case s.Format == "date-time":
		kind = "time"
	case s.Type == "object" && s.AdditionalProperties != nil:
		kind = "map"
	case s.Type == "array":
		kind = "list"
	}
	if len(s.Enum) > 0 {
		kind = strings.Join(literals(s.Enum), ", ")
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		kind += fmt.Sprintf(", %d to %d", int64(*s.Minimum), int64(*s.Maximum))
	case s.Minimum != nil:
		kind += fmt.Sprintf(", at least %d", int64(*s.Minimum))
	}
	if s.Default != nil && string(s.Default.Raw) != "{}" {
		kind += ", default " + literal(*s.Default)
	}
	return kind
}

func literals(values []apiextensionsv1.JSON) []string {
	out := make([]string, 0, len(values))
	for _, v := range values {
		out = append(out, literal(v))
	}
	return out
}

// literal formats a JSON value as code, text without quotes.
func literal(v apiextensionsv1.JSON) string {
	var text string
	if err := json.Unmarshal(v.Raw, &text); err == nil {
		return "`" + text + "`"
	}
	return "`" + string(v.Raw) + "`"
}
