package kube

import (
	"errors"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// lineOf matches the line number in an error of the YAML library.
var lineOf = regexp.MustCompile(`\bline [0-9]+`)

// Decode decodes YAML. Its error contains only a line number: errors of the
// library quote the text, and a kubeconfig contains keys.
func Decode(data []byte, into any) error {
	err := yaml.Unmarshal(data, into)
	if err == nil {
		return nil
	}
	if line := lineOf.FindString(err.Error()); line != "" {
		return errors.New("it is not the YAML that it should be: look at " + line)
	}
	return errors.New("it is not the YAML that it should be")
}
