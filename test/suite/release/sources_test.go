//go:build embedded

package release_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// sources is a folder with the sources of this repository.
type sources struct {
	folder string
	// environment has further variables.
	environment []string
}

func newSources(t *testing.T) sources {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return sources{folder: folder}
}

// copied copies the sources to another folder without git, as an archive of them would have them.
func (s sources) copied(t *testing.T) sources {
	t.Helper()
	other := sources{t.TempDir(), []string{"SOURCE_DATE_EPOCH=" + strings.TrimSpace(s.run(t, "git", "log", "-1", "--format=%ct"))}}
	for name := range strings.SplitSeq(strings.TrimRight(s.run(t, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(s.folder, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(other.folder, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return other
}

// make runs a target of the Makefile and returns what it prints.
func (s sources) make(t *testing.T, target string, variables ...string) string {
	t.Helper()
	return s.run(t, "make", append([]string{"--no-print-directory", target, "VERSION=" + version, "IMAGE=" + image}, variables...)...)
}

func (s sources) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = s.folder, append(os.Environ(), s.environment...)
	var progress strings.Builder
	cmd.Stderr = &progress
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("running %s %s: %v\n%s%s", program, strings.Join(args, " "), err, progress.String(), out)
	}
	t.Logf("%s %s\n%s", program, strings.Join(args, " "), progress.String())
	return string(out)
}

// tool returns the path of a program of test/tools.
func (s sources) tool(t *testing.T, name string) string {
	t.Helper()
	g := NewWithT(t)
	tools, err := toolset.Select(name)
	g.Expect(err).NotTo(HaveOccurred())
	cache, err := toolset.CacheDir()
	g.Expect(err).NotTo(HaveOccurred())
	builder := toolset.Builder{Modules: filepath.Join(s.folder, "test", "tools"), Cache: cache, Progress: os.Stderr}
	folder, err := builder.Folder(t.Context(), tools...)
	g.Expect(err).NotTo(HaveOccurred())
	return filepath.Join(folder, name)
}

// startRegistry starts a registry and returns its address, and the folder with what it stores.
func startRegistry(t *testing.T, s sources) (address, storage string) {
	t.Helper()
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	address, storage = listener.Addr().String(), t.TempDir()
	g.Expect(listener.Close()).To(Succeed())
	config := filepath.Join(t.TempDir(), "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: warn}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %s}\n", storage, address)
	g.Expect(os.WriteFile(config, []byte(text), 0o600)).To(Succeed())
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, s.tool(t, "registry"), "serve", config)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of the registry:\n%s", log.String())
		}
	})
	g.Eventually(func() error {
		response, err := http.Get("http://" + address + "/v2/")
		if err != nil {
			return err
		}
		return response.Body.Close()
	}, 30*time.Second, 50*time.Millisecond).Should(Succeed())
	return address, storage
}

// mirror has a registry serve each image of a list below mirror, as a mirror of its own registry
// would. What it serves is the manager's image that was pushed to the registry.
func mirror(t *testing.T, storage, list string) {
	t.Helper()
	g := NewWithT(t)
	repositories := filepath.Join(storage, "docker", "registry", "v2", "repositories")
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" || line == image+":"+version || strings.HasPrefix(line, "#") {
			continue
		}
		_, name, _ := strings.Cut(line, "/")
		name, tag, _ := strings.Cut(name, ":")
		to := filepath.Join(repositories, "mirror", name)
		g.Expect(os.CopyFS(to, os.DirFS(filepath.Join(repositories, "edge", "elemental-manager")))).To(Succeed())
		tags := filepath.Join(to, "_manifests", "tags")
		g.Expect(os.Rename(filepath.Join(tags, version), filepath.Join(tags, tag))).To(Succeed())
	}
}

// platforms returns the platforms of an image that a registry has under a tag or digest.
func platforms(t *testing.T, registry, repository, reference string) []string {
	t.Helper()
	g := NewWithT(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+registry+"/v2/"+repository+"/manifests/"+reference, http.NoBody)
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Accept", "application/vnd.oci.image.index.v1+json")
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(response.Body.Close()).To(Succeed()) }()
	g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	var index struct {
		Manifests []struct {
			Platform struct{ OS, Architecture string }
		}
	}
	g.Expect(json.NewDecoder(response.Body).Decode(&index)).To(Succeed())
	var all []string
	for _, m := range index.Manifests {
		all = append(all, m.Platform.OS+"/"+m.Platform.Architecture)
	}
	return all
}

// checkAirGap unpacks the archive for air-gapped sites: it is a release itself, and one that was
// changed on the way is refused. listed is one of its images.
func checkAirGap(t *testing.T, s sources, folder, listed string) {
	t.Helper()
	g := NewWithT(t)
	unpacked := t.TempDir()
	s.run(t, "tar", "-xf", filepath.Join(folder, "cluster-api-provider-elemental_"+version+"_airgap.tar"), "-C", unpacked, "--strip-components", "1")
	s.make(t, "verify-release", "RELEASE_DIR="+unpacked)
	list, err := os.ReadFile(filepath.Join(unpacked, "images.txt"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(list)).To(ContainSubstring("\n" + listed + "\n"))

	g.Expect(os.WriteFile(filepath.Join(unpacked, "metadata.yaml"), []byte("kind: Metadata\n"), 0o600)).To(Succeed())
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "verify-release", "RELEASE_DIR="+unpacked)
	cmd.Dir = s.folder
	out, err := cmd.CombinedOutput()
	g.Expect(err).To(HaveOccurred())
	g.Expect(string(out)).To(ContainSubstring("metadata.yaml has the digest"))
}
