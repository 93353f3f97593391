package installscript_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/installscript"
)

// fakeAgent is an agent that prints a unit.
const fakeAgent = `#!/bin/sh
case "$*" in
version) echo v0.1.0 ;;
"unit --program "*) echo "ExecStart=$3 run" ;;
*) exit 2 ;;
esac
`

const configuration = "token: secret\n"

// host is a root folder, and programs that record how they were called.
type host struct {
	*WithT

	t                  *testing.T
	root, programs     string
	script, configFile string
}

func newHost(t *testing.T, agents map[string]string) *host {
	t.Helper()
	folder := t.TempDir()
	h := &host{
		WithT: NewWithT(t), t: t, root: filepath.Join(folder, "root"), programs: filepath.Join(folder, "programs"),
		script: filepath.Join(folder, "install.sh"), configFile: filepath.Join(folder, "config.yaml"),
	}
	h.Expect(os.MkdirAll(h.programs, 0o700)).To(Succeed())
	h.Expect(os.Mkdir(h.root, 0o700)).To(Succeed())
	text, err := installscript.Render(agents)
	h.Expect(err).NotTo(HaveOccurred())
	h.write(h.script, string(text))
	h.write(h.configFile, configuration)
	h.write(filepath.Join(folder, "agent"), fakeAgent)
	h.program("id", `echo 0`)
	h.program("uname", `echo x86_64`)
	h.program("systemctl", `echo "systemctl $*" >> `+folder+`/calls`)
	// The last option but one of curl is the file, the last argument the URL.
	h.program("curl", `echo "curl $* via ${HTTPS_PROXY-}" >> `+folder+`/calls
while [ $# -gt 1 ]; do [ "$1" = --output ] && file=$2; shift; done
cat `+folder+`/agent > "$file"`)
	return h
}

func (h *host) write(path, text string) {
	h.t.Helper()
	h.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	h.Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
}

func (h *host) program(name, body string) {
	h.t.Helper()
	path := filepath.Join(h.programs, name)
	h.write(path, "#!/bin/sh\n"+body+"\n")
	h.Expect(os.Chmod(path, 0o700)).To(Succeed())
}

// run runs the script and returns its output.
func (h *host) run(options ...string) (string, error) {
	h.t.Helper()
	command := exec.CommandContext(h.t.Context(), "sh", append([]string{h.script}, options...)...)
	command.Env = []string{"PATH=" + h.programs + ":" + os.Getenv("PATH"), "ELEMENTAL_ROOT=" + h.root}
	out, err := command.CombinedOutput()
	return string(out), err
}

func (h *host) options(more ...string) []string {
	return append([]string{"--server", "https://agents.example.com/", "--ca", "/run/ca.pem", "--config", h.configFile}, more...)
}

// text returns a file below the root.
func (h *host) text(path string) string {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.root, path))
	h.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

func (h *host) calls() string {
	text, _ := os.ReadFile(filepath.Join(filepath.Dir(h.root), "calls"))
	return string(text)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// The script installs the agent that it names, its unit and the configuration, and starts it.
func TestInstalls(t *testing.T) {
	h := newHost(t, map[string]string{"amd64": digest(fakeAgent), "arm64": digest("another")})
	out, err := h.run(h.options()...)
	h.Expect(err).NotTo(HaveOccurred(), out)
	h.Expect(h.text("usr/local/bin/elemental-agent")).To(Equal(fakeAgent))
	h.Expect(h.text("etc/systemd/system/elemental-agent.service")).To(Equal("ExecStart=/usr/local/bin/elemental-agent run\n"))
	h.Expect(h.text("etc/elemental/agent/config.yaml")).To(Equal(configuration))
	info, err := os.Stat(filepath.Join(h.root, "etc/elemental/agent/config.yaml"))
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)), "it has a token")
	h.Expect(h.calls()).To(MatchRegexp(`^curl .*--proto =https --tlsv1\.3 .*--cacert /run/ca\.pem --capath /dev/null .* https://agents\.example\.com/v1/install/agent\?arch=amd64 via \n`))
	h.Expect(h.calls()).To(HaveSuffix("systemctl daemon-reload\nsystemctl enable elemental-agent.service\nsystemctl restart elemental-agent.service\n"))

	out, err = h.run(h.options()...)
	h.Expect(err).NotTo(HaveOccurred(), "it can be repeated: %s", out)
	h.write(filepath.Join(h.root, "etc/elemental/agent/config.yaml"), "servers: []\n")
	out, err = h.run(h.options()...)
	h.Expect(err).To(HaveOccurred())
	h.Expect(out).To(ContainSubstring("remove it to enrol the host anew"))
	h.Expect(h.text("etc/elemental/agent/config.yaml")).To(Equal("servers: []\n"), "the configuration of an enrolled host stays")
}

// The script can be repeated on systems without diffutils, too.
func TestRepeatsWithoutDiffutils(t *testing.T) {
	h := newHost(t, map[string]string{"amd64": digest(fakeAgent)})
	h.program("cmp", "exit 127")
	for range 2 {
		out, err := h.run(h.options()...)
		h.Expect(err).NotTo(HaveOccurred(), out)
	}
}

// packaged installs the agent's package.
func (h *host) packaged(text string) {
	h.t.Helper()
	program := filepath.Join(h.root, "usr/bin/elemental-agent")
	h.write(program, text)
	h.Expect(os.Chmod(program, 0o700)).To(Succeed())
}

// An agent that its package has installed gets the configuration, and nothing is downloaded.
func TestUsesThePackage(t *testing.T) {
	h := newHost(t, map[string]string{"amd64": digest("another")})
	h.packaged(fakeAgent)
	out, err := h.run(h.options("--https-proxy", "http://proxy:3128")...)
	h.Expect(err).NotTo(HaveOccurred(), out)
	h.Expect(h.text("etc/elemental/agent/config.yaml")).To(Equal(configuration))
	h.Expect(h.text("etc/default/elemental-agent")).To(Equal("HTTPS_PROXY=http://proxy:3128\n"))
	h.Expect(h.text("usr/bin/elemental-agent")).To(Equal(fakeAgent))
	h.Expect(filepath.Join(h.root, "usr/local")).NotTo(BeADirectory())
	h.Expect(filepath.Join(h.root, "etc/systemd")).NotTo(BeADirectory(), "the unit is that of the package")
	h.Expect(h.calls()).To(Equal("systemctl daemon-reload\nsystemctl enable elemental-agent.service\nsystemctl restart elemental-agent.service\n"))
}

// A package that can't be used is refused before anything is changed.
func TestRefusesThePackage(t *testing.T) {
	t.Run("for another machine", func(t *testing.T) {
		h := newHost(t, nil)
		h.packaged("#!/bin/sh\nexit 126\n")
		out, err := h.run(h.options()...)
		h.Expect(err).To(HaveOccurred())
		h.Expect(out).To(ContainSubstring("the agent of the package does not run on this host"))
		h.Expect(filepath.Join(h.root, "etc")).NotTo(BeADirectory())
	})
	t.Run("beside an agent that was installed by hand", func(t *testing.T) {
		h := newHost(t, nil)
		h.packaged(fakeAgent)
		h.write(filepath.Join(h.root, "etc/systemd/system/elemental-agent.service"), "by hand")
		out, err := h.run(h.options()...)
		h.Expect(err).To(HaveOccurred())
		h.Expect(out).To(ContainSubstring("remove /etc/systemd/system/elemental-agent.service and its program"))
		h.Expect(filepath.Join(h.root, "etc/elemental")).NotTo(BeADirectory())
	})
}

// Proxies are used for the download, and are kept for the agent.
func TestInstallsThroughAProxy(t *testing.T) {
	h := newHost(t, map[string]string{"amd64": digest(fakeAgent)})
	h.write(filepath.Join(h.root, "etc/default/elemental-agent"), "# mine\nHTTPS_PROXY=http://old:1\nTMPDIR=/var/tmp\n")
	out, err := h.run(h.options("--https-proxy", "http://proxy:3128", "--no-proxy", "10.0.0.0/8,.site")...)
	h.Expect(err).NotTo(HaveOccurred(), out)
	h.Expect(h.text("etc/default/elemental-agent")).To(Equal("# mine\nTMPDIR=/var/tmp\nHTTPS_PROXY=http://proxy:3128\nNO_PROXY=10.0.0.0/8,.site\n"))
	h.Expect(h.calls()).To(ContainSubstring("via http://proxy:3128\n"))
}

// A download that the manager ends is continued where it was.
func TestContinuesTheDownload(t *testing.T) {
	h := newHost(t, map[string]string{"amd64": digest(fakeAgent)})
	folder := filepath.Dir(h.root)
	h.program("curl", `case "$*" in *"--continue-at - "*) ;; *) exit 2 ;; esac
while [ $# -gt 1 ]; do [ "$1" = --output ] && file=$2; shift; done
have=$(cat "$file" 2>/dev/null | wc -c)
tail -c +$((have + 1)) `+folder+`/agent | head -c 40 >> "$file"
[ $(wc -c < "$file") = $(wc -c < `+folder+`/agent) ] || exit 18`)
	out, err := h.run(h.options()...)
	h.Expect(err).NotTo(HaveOccurred(), out)
	h.Expect(h.text("usr/local/bin/elemental-agent")).To(Equal(fakeAgent))

	h.program("curl", "echo x >> "+folder+"/attempts; exit 18")
	out, err = h.run(h.options()...)
	h.Expect(err).To(HaveOccurred())
	h.Expect(out).To(ContainSubstring("could not be downloaded"))
	attempts, err := os.ReadFile(filepath.Join(folder, "attempts"))
	h.Expect(err).NotTo(HaveOccurred())
	h.Expect(string(attempts)).To(Equal(strings.Repeat("x\n", 20)), "it gives up some time")
}

// Nothing of a download that is not the named agent is executed or kept.
func TestRefusesAnotherAgent(t *testing.T) {
	h := newHost(t, map[string]string{"amd64": digest("the agent")})
	out, err := h.run(h.options()...)
	h.Expect(err).To(HaveOccurred())
	h.Expect(out).To(ContainSubstring("another SHA-256 than " + digest("the agent")))
	h.Expect(filepath.Join(h.root, "usr/local/bin/elemental-agent")).NotTo(BeAnExistingFile())
	h.Expect(filepath.Join(h.root, "etc")).NotTo(BeADirectory())
	h.Expect(h.calls()).NotTo(ContainSubstring("systemctl"))
}

// Each refusal says why, and comes before anything is changed.
func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*host)
		options []string
		want    string
	}{
		"no options":           {options: []string{}, want: "--server, --ca and --config are needed"},
		"no value":             {options: []string{"--server"}, want: "--server needs a value"},
		"unknown option":       {options: []string{"--fly", "x"}, want: "unknown option --fly"},
		"no root":              {change: func(h *host) { h.program("id", "echo 1000") }, want: "it takes root"},
		"another architecture": {change: func(h *host) { h.program("uname", "echo s390x") }, want: "there is no agent for s390x"},
		"not served":           {change: func(h *host) { h.program("uname", "echo aarch64") }, want: "the manager serves no agent for arm64"},
		"not reachable":        {change: func(h *host) { h.program("curl", "exit 7") }, want: "could not be downloaded from https://agents.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, map[string]string{"amd64": digest(fakeAgent)})
			if test.change != nil {
				test.change(h)
			}
			options := test.options
			if options == nil {
				options = h.options()
			}
			out, err := h.run(options...)
			h.Expect(err).To(HaveOccurred())
			h.Expect(out).To(ContainSubstring(test.want))
			h.Expect(filepath.Join(h.root, "etc")).NotTo(BeADirectory())
			h.Expect(h.calls()).NotTo(ContainSubstring("systemctl"))
		})
	}
}

// A script that arrives only in part, as in a pipe whose connection breaks, does nothing.
func TestACutScriptDoesNothing(t *testing.T) {
	h := newHost(t, map[string]string{"amd64": digest(fakeAgent)})
	whole, err := os.ReadFile(h.script)
	h.Expect(err).NotTo(HaveOccurred())
	text := strings.TrimSuffix(string(whole), "\n")
	h.Expect(text).To(HaveSuffix("\nmain \"$@\""))
	var ends []int
	for i := range text {
		// All lines, and all places in the last one.
		if text[i] == '\n' || i > len(text)-len("\nmain \"$@\"") {
			ends = append(ends, i)
		}
	}
	for _, end := range ends {
		h.write(h.script, text[:end])
		_, _ = h.run(h.options()...)
		h.Expect(h.calls()).To(BeEmpty(), "after %d bytes", end)
		entries, err := os.ReadDir(h.root)
		h.Expect(err).NotTo(HaveOccurred())
		h.Expect(entries).To(BeEmpty(), "after %d bytes", end)
	}
}

// Only names of architectures and digests get into the script.
func TestValuesAreChecked(t *testing.T) {
	g := NewWithT(t)
	for name, agents := range map[string]map[string]string{
		"a command":  {"amd64": "$(reboot)"},
		"upper case": {"amd64": strings.ToUpper(digest("x"))},
		"no digest":  {"amd64": ""},
		"a pattern":  {"*": digest("x")},
	} {
		_, err := installscript.Render(agents)
		g.Expect(err).To(HaveOccurred(), name)
	}
}
