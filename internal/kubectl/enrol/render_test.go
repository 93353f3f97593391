package enrol_test

import (
	"encoding/pem"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/cloudconfig"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/ignition"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/enrol"
)

var update = flag.Bool("update", false, "write the golden files anew")

const authority = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"

const configuration = `servers:
- https://agents.example.com:8443
token: some-token
trustBundle: |
  -----BEGIN CERTIFICATE-----
  MIIB
  -----END CERTIFICATE-----
`

func sample() *enrol.Enrolment {
	return &enrol.Enrolment{
		Namespace: "sites", Registration: "berlin", Server: "https://agents.example.com:8443", TrustBundle: authority,
		Configuration: configuration, ExpiresAt: time.Date(2026, 5, 5, 12, 0, 0, 0, time.UTC), Uses: 20,
	}
}

// render returns the text for a format, and compares it with a file of testdata.
func render(t *testing.T, format, golden string, proxy enrol.Proxy) string {
	t.Helper()
	g := NewWithT(t)
	text, err := sample().Render(format, proxy)
	g.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join("testdata", golden)
	if *update {
		g.Expect(os.WriteFile(file, []byte(text), 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(Equal(string(want)))
	return text
}

var behindProxy = enrol.Proxy{HTTPS: "http://proxy.example.com:3128", No: "10.0.0.0/8,.site"}

// The script fetches the install script with the registration's CA only, and passes the
// configuration on.
func TestShell(t *testing.T) {
	for golden, proxy := range map[string]enrol.Proxy{"shell.sh": {}, "shell-proxy.sh": behindProxy} {
		t.Run(golden, func(t *testing.T) {
			g := NewWithT(t)
			got := runScript(t, render(t, "shell", golden, proxy))
			g.Expect(got["curl"]).To(ContainSubstring("--proto =https --tlsv1.3 --cacert FOLDER/ca.pem --capath /dev/null"))
			g.Expect(got["curl"]).To(HaveSuffix(" https://agents.example.com:8443/v1/install via " + proxy.HTTPS + " without " + proxy.No + "\n"))
			g.Expect(got["ca"]).To(Equal(authority))
			g.Expect(got["config"]).To(Equal(configuration))
			options := "--server https://agents.example.com:8443"
			if proxy.HTTPS != "" {
				options += " --https-proxy " + proxy.HTTPS + " --no-proxy " + proxy.No
			}
			g.Expect(got["install"]).To(Equal(options + " --ca FOLDER/ca.pem --config FOLDER/config.yaml\n"))
		})
	}
}

// runScript runs a script with a curl whose download records how it was called.
func runScript(t *testing.T, script string) map[string]string {
	t.Helper()
	g := NewWithT(t)
	folder := t.TempDir()
	download := `#!/bin/sh
echo "$*" > ` + folder + `/install
while [ $# -gt 0 ]; do
	case $1 in --ca) cp "$2" ` + folder + `/ca ;; --config) cp "$2" ` + folder + `/config ;; esac
	shift
done
`
	g.Expect(os.WriteFile(filepath.Join(folder, "download"), []byte(download), 0o600)).To(Succeed())
	curl := `#!/bin/sh
echo "$* via ${HTTPS_PROXY-} without ${NO_PROXY-}" > ` + folder + `/curl
while [ $# -gt 0 ]; do [ "$1" = --output ] && cp ` + folder + `/download "$2"; shift; done
`
	programs := filepath.Join(folder, "programs")
	g.Expect(os.Mkdir(programs, 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(programs, "curl"), []byte(curl), 0o700)).To(Succeed())
	temporary := filepath.Join(folder, "tmp")
	g.Expect(os.Mkdir(temporary, 0o700)).To(Succeed())
	command := exec.CommandContext(t.Context(), "sh")
	command.Stdin = strings.NewReader(script)
	command.Env = []string{"PATH=" + programs + ":" + os.Getenv("PATH"), "TMPDIR=" + temporary}
	out, err := command.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	left, err := os.ReadDir(temporary)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(BeEmpty(), "the token is not left behind")
	got := map[string]string{}
	for _, name := range []string{"curl", "install", "ca", "config"} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		g.Expect(err).NotTo(HaveOccurred())
		got[name] = inFolder(temporary, string(text))
	}
	return got
}

// inFolder replaces the script's temporary folder by FOLDER.
func inFolder(temporary, text string) string {
	before := text
	for word := range strings.FieldsSeq(before) {
		if strings.HasPrefix(word, temporary) {
			text = strings.ReplaceAll(text, filepath.Dir(word), "FOLDER")
		}
	}
	return text
}

// The cloud-config and the Ignition configuration put the same script and unit on the host.
func TestFirstConfigurations(t *testing.T) {
	g := NewWithT(t)
	script := render(t, "shell", "shell.sh", enrol.Proxy{})
	parsed, warnings, err := cloudconfig.Parse([]byte(render(t, "cloud-init", "user-data.yaml", enrol.Proxy{})), bootstrapdata.NewVariables(nil, nil))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(BeEmpty())
	g.Expect(parsed.Files).To(HaveLen(2))
	g.Expect(parsed.Files[0]).To(And(HaveField("Path", "/etc/elemental/enrol.sh"), HaveField("Mode", HaveValue(BeEquivalentTo(0o700)))))
	g.Expect(string(parsed.Files[0].Content)).To(Equal(script))
	unit := string(parsed.Files[1].Content)
	g.Expect(unit).To(ContainSubstring("ExecStart=/bin/sh /etc/elemental/enrol.sh\n"))
	g.Expect(parsed.Commands).To(HaveLen(2))

	config, warnings, err := ignition.Parse([]byte(render(t, "ignition", "config.ign", enrol.Proxy{})))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(BeEmpty())
	g.Expect(config.Files).To(HaveLen(2))
	g.Expect(string(config.Files[0].Content)).To(Equal(script))
	g.Expect(config.Files[1]).To(HaveField("Path", "/etc/systemd/system/elemental-enrol.service"))
	g.Expect(string(config.Files[1].Content)).To(Equal(unit))
	g.Expect(config.Units).To(ConsistOf(HaveField("Name", "elemental-enrol.service")))

	combustion := render(t, "combustion", "combustion.sh", enrol.Proxy{})
	g.Expect(combustion).To(HavePrefix("#!/bin/sh\n# combustion:"))
	g.Expect(combustion).To(And(ContainSubstring(script), ContainSubstring(unit)))
	check := exec.CommandContext(t.Context(), "sh", "-n")
	check.Stdin = strings.NewReader(combustion)
	out, err := check.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
}

// Nothing gets into the script that a shell would act on.
func TestValuesOfTheScript(t *testing.T) {
	g := NewWithT(t)
	for name, proxy := range map[string]enrol.Proxy{
		"no URL":          {HTTPS: "proxy:3128"},
		"a command":       {HTTPS: "http://proxy:3128/$(reboot)"},
		"a quote":         {HTTPS: "http://'proxy"},
		"a line":          {HTTPS: "http://proxy\nTOKEN=x"},
		"another command": {No: "a;reboot"},
		"spaces":          {No: "a, b"},
	} {
		_, err := sample().Render("shell", proxy)
		g.Expect(err).To(HaveOccurred(), name)
	}
	hostile := sample()
	hostile.Configuration += "END_OF_CONFIGURATION\nreboot\n"
	_, err := hostile.Render("shell", enrol.Proxy{})
	g.Expect(err).To(MatchError(ContainSubstring("a text that would end it")))
	_, err = sample().Render("pxe", enrol.Proxy{})
	g.Expect(err).To(MatchError(ContainSubstring(`"pxe"; it must be one of shell, cloud-init, ignition, combustion`)))
}

// The manager is asked whether it serves agents.
func TestCheckServed(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusOK:                  "",
		http.StatusServiceUnavailable:  "the manager serves no agent",
		http.StatusNotFound:            "older than this plugin",
		http.StatusInternalServerError: enrol.ErrUnreachable.Error(),
	} {
		g := NewWithT(t)
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g.Expect(r.URL.Path).To(Equal("/v1/install"))
			w.WriteHeader(status)
		}))
		i := sample()
		i.Server = server.URL
		g.Expect(i.CheckServed(t.Context())).To(MatchError(ContainSubstring("no CA certificate")))
		i.TrustBundle = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
		err := i.CheckServed(t.Context())
		if want == "" {
			g.Expect(err).NotTo(HaveOccurred())
		} else {
			g.Expect(err).To(MatchError(ContainSubstring(want)))
		}
		server.Close()
		g.Expect(i.CheckServed(t.Context())).To(MatchError(enrol.ErrUnreachable))
	}
}
