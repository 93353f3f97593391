package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

const tokenKey = "token"

// ErrByHand is the error of a configuration from which a person must remove the token.
var ErrByHand = errors.New("remove the token there yourself")

// ForgetToken removes the token from the configuration at path, and changes nothing else.
// It replaces the file atomically. It does not change a symbolic link, as the target is
// managed by something else.
func ForgetToken(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("removing the token: %w", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("removing the token: %w", err)
	}
	before, err := Parse(data)
	if err != nil {
		return fmt.Errorf("removing the token from %s: %w", path, err)
	}
	if before.Token == "" {
		return nil
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file but a link that something else manages: %w", path, ErrByHand)
	}
	text, err := withoutToken(data, before)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := durable.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("removing the token: %w", err)
	}
	return nil
}

// withoutToken removes the lines of the token.
func withoutToken(data []byte, before Config) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, withoutValues(err)
	}
	first, last := tokenLines(&document)
	lines := bytes.SplitAfter(data, []byte("\n"))
	if first == 0 || last > len(lines) {
		return nil, ErrByHand
	}
	text := append(bytes.Join(lines[:first-1], nil), bytes.Join(lines[last:], nil)...)
	// All other settings must be unchanged.
	after, err := Parse(text)
	before.Token = ""
	if err != nil || !reflect.DeepEqual(after, before) {
		return nil, ErrByHand
	}
	return text, nil
}

// tokenLines returns the first and the last line of the token, counted from 1; zero if the
// lines contain anything else.
func tokenLines(document *yaml.Node) (first, last int) {
	if len(document.Content) != 1 || document.Content[0].Style&yaml.FlowStyle != 0 {
		return 0, 0
	}
	root := document.Content[0].Content
	for i := 0; i+1 < len(root); i += 2 {
		if key, value := root[i], root[i+1]; key.Value == tokenKey {
			last = value.Line
			if value.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
				last += strings.Count(strings.TrimRight(value.Value, "\n"), "\n") + 1
			}
			return key.Line, last
		}
	}
	return 0, 0
}
