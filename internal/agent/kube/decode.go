package kube

import (
	"errors"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// lineOf is where an error of the YAML library has the line.
var lineOf = regexp.MustCompile(`\bline [0-9]+`)

// Decode reads YAML. Its error says at most which line is wrong: the library's
// quotes what it found there, and a kubeconfig has keys.
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
