package installscript

import (
	"bytes"
	_ "embed" // for the script
	"fmt"
	"maps"
	"regexp"
	"slices"
	"text/template"
)

//go:embed install.sh
var source string

// agent is an agent that the script can install.
type agent struct {
	Architecture, SHA256 string
}

// Render returns the script for agents, whose SHA-256 in lower-case hex is given by
// architecture, as Go names it. Neither can be anything that a shell would act on.
func Render(agents map[string]string) ([]byte, error) {
	architecture, digest := regexp.MustCompile(`^[a-z0-9]{1,16}$`), regexp.MustCompile(`^[0-9a-f]{64}$`)
	var values []agent
	for _, name := range slices.Sorted(maps.Keys(agents)) {
		if !architecture.MatchString(name) || !digest.MatchString(agents[name]) {
			return nil, fmt.Errorf("rendering the install script: %q with digest %q is no agent", name, agents[name])
		}
		values = append(values, agent{Architecture: name, SHA256: agents[name]})
	}
	parsed, err := template.New("install.sh").Parse(source)
	if err != nil {
		return nil, fmt.Errorf("parsing the install script: %w", err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, values); err != nil {
		return nil, fmt.Errorf("rendering the install script: %w", err)
	}
	return out.Bytes(), nil
}
