package packages_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sassoftware/go-rpmutils"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/packages"
)

// unit is the agent's unit as it is in this repository.
var unit = filepath.Join("..", "..", "..", "cmd", "elemental-agent", "elemental-agent.service")

// write writes both packages of an agent for arm64 and returns their paths.
func write(t *testing.T, version string) (deb, rpm string) {
	t.Helper()
	folder, program := t.TempDir(), filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("the agent"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := packages.Write(folder, packages.Options{
		Version: version, Architecture: "arm64", Time: time.Unix(1_700_000_000, 0), Program: program, Unit: unit,
		License: filepath.Join("..", "..", "..", "LICENSE"),
	}); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(found) != 2 {
		t.Fatalf("found %v, %v", found, err)
	}
	slices.Sort(found)
	slices.SortFunc(found, func(a, b string) int { return strings.Compare(filepath.Ext(a), filepath.Ext(b)) })
	return found[0], found[1]
}

// members returns the members of an ar archive.
func members(t *testing.T, file string) map[string][]byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	in, all := bufio.NewReader(f), map[string][]byte{}
	if magic, err := in.ReadString('\n'); err != nil || magic != "!<arch>\n" {
		t.Fatalf("got %q, %v", magic, err)
	}
	for {
		header := make([]byte, 60)
		if _, err := io.ReadFull(in, header); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		var size int64
		if _, err := fmt.Sscan(string(header[48:58]), &size); err != nil {
			t.Fatal(err)
		}
		content := make([]byte, size+size%2)
		if _, err := io.ReadFull(in, content); err != nil {
			t.Fatal(err)
		}
		all[strings.TrimRight(string(header[:16]), " /")] = content[:size]
	}
}

// files returns the files of a compressed tar archive, each with its mode and owner.
func files(t *testing.T, archive []byte) (contents map[string]string, listed []string) {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	contents = map[string]string{}
	for in := tar.NewReader(zip); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return contents, listed
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(header.Name, ".")
		contents[name] = string(content)
		if header.Typeflag == tar.TypeReg {
			listed = append(listed, fmt.Sprintf("%04o %s %s", header.Mode, header.Uname, name))
		}
	}
}

// packed are the files of both packages.
const packed = `0644 root /etc/default/elemental-agent
0755 root /usr/bin/elemental-agent
0644 root /usr/lib/systemd/system/elemental-agent.service
0644 root /usr/share/doc/elemental-agent/copyright`

func TestDeb(t *testing.T) {
	deb, _ := write(t, "v1.2.3")
	if got := filepath.Base(deb); got != "elemental-agent_1.2.3_arm64.deb" {
		t.Errorf("got %s", got)
	}
	parts := members(t, deb)
	data, listed := files(t, parts["data.tar.gz"])
	slices.SortFunc(listed, func(a, b string) int { return strings.Compare(a[5:], b[5:]) })
	if got := strings.Join(listed, "\n"); got != packed {
		t.Errorf("got files\n%s", got)
	}
	if data["/usr/bin/elemental-agent"] != "the agent" {
		t.Errorf("got program %q", data["/usr/bin/elemental-agent"])
	}
	checkUnit(t, data["/usr/lib/systemd/system/elemental-agent.service"])
	control, _ := files(t, parts["control.tar.gz"])
	for _, line := range []string{"Package: elemental-agent", "Version: 1.2.3", "Architecture: arm64", "Depends: init-system-helpers"} {
		if !strings.Contains(control["/control"], line+"\n") {
			t.Errorf("%q is not in\n%s", line, control["/control"])
		}
	}
	if control["/conffiles"] != "/etc/default/elemental-agent\n" {
		t.Errorf("got configuration files %q", control["/conffiles"])
	}
	for _, script := range []string{"/postinst", "/prerm", "/postrm"} {
		if !strings.HasPrefix(control[script], "#!/bin/sh\n") {
			t.Errorf("%s is %q", script, control[script])
		}
	}
	if _, err := exec.LookPath("dpkg-deb"); err == nil {
		out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--contents", deb).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "-rwxr-xr-x root/root") {
			t.Errorf("dpkg-deb --contents: %v\n%s", err, out)
		}
	}
}

// A release candidate is older than the release for dpkg, too.
func TestVersionOfCandidate(t *testing.T) {
	deb, rpm := write(t, "v1.2.3-rc.1")
	if got := filepath.Base(deb); got != "elemental-agent_1.2.3~rc.1_arm64.deb" {
		t.Errorf("got %s", got)
	}
	if got := filepath.Base(rpm); got != "elemental-agent-1.2.3~rc.1-1.aarch64.rpm" {
		t.Errorf("got %s", got)
	}
}

// The unit that is packed is that of the repository, and starts the packed agent by its own path:
// otherwise the agent would not update itself.
func checkUnit(t *testing.T, text string) {
	t.Helper()
	for _, line := range []string{"ExecStartPre=-/usr/bin/elemental-agent.previous guard", "ExecStart=/usr/bin/elemental-agent run --self-update"} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
	if strings.Contains(text, "/usr/local/bin/elemental-agent") {
		t.Errorf("it starts another agent:\n%s", text)
	}
}

func TestRPM(t *testing.T) {
	_, file := write(t, "v1.2.3")
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	rpm, err := rpmutils.ReadRpm(f)
	if err != nil {
		t.Fatal(err)
	}
	nevra, err := rpm.Header.GetNEVRA()
	if err != nil || nevra.String() != "elemental-agent-0:1.2.3-1.aarch64.rpm" {
		t.Errorf("got %v, %v", nevra, err)
	}
	all, err := rpm.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, file := range all {
		listed = append(listed, fmt.Sprintf("%04o %s %s", file.Mode()&0o777, file.UserName(), file.Name()))
		if isConfig := file.Flags()&rpmutils.RPMFILE_CONFIG != 0; isConfig != strings.HasPrefix(file.Name(), "/etc/") {
			t.Errorf("%s is configuration: %t", file.Name(), isConfig)
		}
	}
	slices.SortFunc(listed, func(a, b string) int { return strings.Compare(a[5:], b[5:]) })
	if got := strings.Join(listed, "\n"); got != packed {
		t.Errorf("got files\n%s", got)
	}
	for _, tag := range []int{rpmutils.POSTIN, rpmutils.PREUN, rpmutils.POSTUN} {
		if script, err := rpm.Header.GetString(tag); err != nil || !strings.Contains(script, "elemental-agent.service") {
			t.Errorf("script %d is %q, %v", tag, script, err)
		}
	}
}

func TestReproducible(t *testing.T) {
	first, second := [2]string{}, [2]string{}
	first[0], first[1] = write(t, "v1.2.3")
	second[0], second[1] = write(t, "v1.2.3")
	for n := range first {
		a, errA := os.ReadFile(first[n])
		b, errB := os.ReadFile(second[n])
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("two of %s differ: %v, %v", filepath.Base(first[n]), errA, errB)
		}
	}
}

// A unit that starts another program can't be packed.
func TestOtherUnit(t *testing.T) {
	other := filepath.Join(t.TempDir(), "unit")
	if err := os.WriteFile(other, []byte("[Service]\nExecStart=/opt/agent\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := packages.Write(t.TempDir(), packages.Options{Version: "v1.2.3", Architecture: "amd64", Program: other, Unit: other, License: other})
	if err == nil || !strings.Contains(err.Error(), "does not start /usr/local/bin/elemental-agent") {
		t.Errorf("got error %v", err)
	}
}
