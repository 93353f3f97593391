package enrol

import (
	"bytes"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

//go:embed templates
var templates embed.FS

// Formats returns the formats that Render knows.
func Formats() []string { return []string{"shell", "cloud-init", "ignition", "combustion"} }

// Proxy is how hosts reach the agent API. Both fields may be blank.
type Proxy struct {
	// HTTPS is the URL of a proxy, and No a list of names and networks that need none.
	HTTPS, No string
}

// values are what the templates get. Those of the script are quoted for the shell.
type values struct {
	Enrolment

	Expires, URL, CA, Proxies, Options string
	// Script and Unit are the files that the first configuration of a system has.
	Script, Unit string
}

// Render returns the text for a format.
func (i *Enrolment) Render(format string, proxy Proxy) (string, error) {
	if err := proxy.check(); err != nil {
		return "", err
	}
	v := values{
		Enrolment: *i, Expires: i.ExpiresAt.UTC().Format(time.RFC3339), CA: withNewline(i.TrustBundle),
		URL: quote(strings.TrimSuffix(i.Server, "/") + protocol.PathInstall), Proxies: proxy.environment(),
		Options: "--server " + quote(i.Server) + proxy.options(),
	}
	v.Configuration = withNewline(v.Configuration)
	var err error
	if v.Script, err = execute("enrol.sh", v); err != nil {
		return "", err
	}
	if v.Unit, err = execute("elemental-enrol.service", v); err != nil {
		return "", err
	}
	switch format {
	case "shell":
		return v.Script, nil
	case "cloud-init":
		return execute("user-data.yaml", v)
	case "combustion":
		return execute("combustion.sh", v)
	case "ignition":
		return ignition(v)
	default:
		return "", fmt.Errorf("the format is %q; it must be one of %s", format, strings.Join(Formats(), ", "))
	}
}

// execute renders a template. A text that would end one of its here-documents is refused.
func execute(name string, v values) (string, error) {
	for _, text := range []string{v.CA, v.Configuration} {
		if strings.Contains(text, "END_OF_") {
			return "", errors.New("rendering the script: the agent configuration has a text that would end it")
		}
	}
	parsed, err := template.New(name).Funcs(template.FuncMap{"indent": indent}).ParseFS(templates, "templates/"+name)
	if err != nil {
		return "", fmt.Errorf("parsing the template: %w", err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, v); err != nil {
		return "", fmt.Errorf("rendering %s: %w", name, err)
	}
	return out.String(), nil
}

// ignition returns a configuration of Ignition 3.
func ignition(v values) (string, error) {
	type object = map[string]any
	text, err := json.MarshalIndent(object{
		"ignition": object{"version": "3.3.0"},
		"storage": object{"files": []object{{
			"path": "/etc/elemental/enrol.sh", "mode": 0o700, "overwrite": true,
			"contents": object{"source": "data:;base64," + base64.StdEncoding.EncodeToString([]byte(v.Script))},
		}}},
		"systemd": object{"units": []object{{"name": "elemental-enrol.service", "enabled": true, "contents": v.Unit}}},
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding the Ignition configuration: %w", err)
	}
	return string(text) + "\n", nil
}

func (p Proxy) check() error {
	if p.HTTPS != "" && !regexp.MustCompile(`^https?://[A-Za-z0-9._~:@%\[\]-]+/?$`).MatchString(p.HTTPS) {
		return errors.New("the proxy must be http://host:port or https://host:port")
	}
	if p.No != "" && !regexp.MustCompile(`^[A-Za-z0-9.:/*,\[\]-]+$`).MatchString(p.No) {
		return errors.New("what needs no proxy must be names, addresses and networks, separated by commas without spaces")
	}
	return nil
}

// environment returns lines of shell that set the proxy.
func (p Proxy) environment() string {
	out := ""
	if p.HTTPS != "" {
		out += "\texport HTTPS_PROXY=" + quote(p.HTTPS) + "\n"
	}
	if p.No != "" {
		out += "\texport NO_PROXY=" + quote(p.No) + "\n"
	}
	return out
}

// options returns options of the install script.
func (p Proxy) options() string {
	out := ""
	if p.HTTPS != "" {
		out += " --https-proxy " + quote(p.HTTPS)
	}
	if p.No != "" {
		out += " --no-proxy " + quote(p.No)
	}
	return out
}

// quote returns a word of shell that means the text.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func withNewline(text string) string { return strings.TrimRight(text, "\n") + "\n" }

// indent puts spaces in front of all lines but blank ones.
func indent(spaces int, text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			out.WriteString(strings.Repeat(" ", spaces))
		}
		out.WriteString(line)
	}
	return out.String()
}
