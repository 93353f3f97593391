// Package sbom says which modules a Go program has, as a CycloneDX document.
package sbom

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// Write writes the document for a program. What it says comes from the program itself, and
// neither a serial number nor a time is in it: the same program has the same document.
func Write(w io.Writer, name, version string, program []byte) error {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("reading the modules of %s: %w", name, err)
	}
	main := purl(info.Main.Path, version)
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: main, Type: cdx.ComponentTypeApplication, Name: name, Version: version, PackageURL: main,
		Properties: properties(info),
	}}
	modules := modulesOf(info)
	var components []cdx.Component
	var references []string
	for _, m := range modules {
		component := cdx.Component{
			BOMRef: purl(m.Path, m.Version), Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl(m.Path, m.Version),
		}
		if m.Sum != "" {
			component.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
		}
		components, references = append(components, component), append(references, component.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main, Dependencies: &references}}
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// Check returns an error that names what differs between the modules of a document and those of
// a program.
func Check(document, program []byte) error {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("reading the modules of the program: %w", err)
	}
	var bom cdx.BOM
	if err := json.Unmarshal(document, &bom); err != nil {
		return fmt.Errorf("reading the document: %w", err)
	}
	var listed []string
	if bom.Components != nil {
		for _, c := range *bom.Components {
			listed = append(listed, c.PackageURL)
		}
	}
	var wrong []error
	for _, m := range modulesOf(info) {
		at := slices.Index(listed, purl(m.Path, m.Version))
		if at < 0 {
			wrong = append(wrong, fmt.Errorf("%s %s is missing", m.Path, m.Version))
			continue
		}
		listed = slices.Delete(listed, at, at+1)
	}
	for _, left := range listed {
		wrong = append(wrong, fmt.Errorf("%s is not in the program", left))
	}
	return errors.Join(wrong...)
}

// modulesOf returns the modules that a program has besides its own, as they were built, and the
// standard library first.
func modulesOf(info *debug.BuildInfo) []debug.Module {
	version, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	modules := []debug.Module{{Path: "stdlib", Version: version}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, debug.Module{Path: m.Path, Version: m.Version, Sum: m.Sum})
	}
	return modules
}

// properties has what the program was built for.
func properties(info *debug.BuildInfo) *[]cdx.Property {
	var all []cdx.Property
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "CGO_ENABLED" {
			all = append(all, cdx.Property{Name: "go:" + s.Key, Value: s.Value})
		}
	}
	return &all
}

// purl returns the package URL of a module.
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}
