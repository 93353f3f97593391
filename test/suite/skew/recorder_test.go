//go:build embedded && recording

package skew

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/remote"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/traffic"
)

// recording are the replacements by which the agents' client of a checkout records its traffic.
func (r *recorder) recording(checkout string) map[string]string {
	r.t.Helper()
	source := filepath.Join(checkout, "internal", "agent", "client")
	content, err := os.ReadFile(filepath.Join(source, "call.go"))
	r.Expect(err).NotTo(HaveOccurred())
	const call = "return c.httpClient().Do(request)"
	r.Expect(bytes.Count(content, []byte(call))).To(Equal(1))
	changed := filepath.Join(r.folder, "call.go")
	content = bytes.Replace(content, []byte(call), []byte("return recorded(c.httpClient().Do(request))"), 1)
	r.Expect(os.WriteFile(changed, content, 0o600)).To(Succeed())
	added, err := filepath.Abs(filepath.Join("testdata", "record.go"))
	r.Expect(err).NotTo(HaveOccurred())
	return map[string]string{filepath.Join(source, "call.go"): changed, filepath.Join(source, "record.go"): added}
}

// recordedHost is a virtual host whose traffic is recorded.
type recordedHost struct {
	r     *recorder
	name  string
	fleet *remote.Fleet
	file  string
}

// start starts a host with a token.
func (r *recorder) start(name, token string, faults fleet.Faults) *recordedHost {
	r.t.Helper()
	h := &recordedHost{r: r, name: name, file: filepath.Join(r.folder, name+".jsonl")}
	var err error
	h.fleet, err = remote.Start(r.t.Context(), []string{"env", "RECORD_TRAFFIC=" + h.file, r.program}, fleet.Settings{
		Count: 1, Prefix: name, Servers: []string{r.management.AgentURL}, TrustBundle: r.management.CABundle, Token: token,
		BootTime: 100 * time.Millisecond, Faults: faults, Seed: 1,
	}, os.Stderr)
	r.Expect(err).NotTo(HaveOccurred())
	r.t.Cleanup(func() { _ = h.fleet.Close() })
	r.Expect(h.fleet.Do(r.t.Context(), remote.PowerOn, 0)).To(Succeed())
	return h
}

// reboot reboots the host. Its agent then says at once what it would otherwise say later.
func (h *recordedHost) reboot() {
	h.r.t.Helper()
	h.r.Expect(h.fleet.Do(h.r.t.Context(), remote.Reboot, 0)).To(Succeed())
}

// object returns the host's object, which its first enrolment was answered with.
func (h *recordedHost) object() *infrav1.ElementalHost {
	h.r.t.Helper()
	hosts := &infrav1.ElementalHostList{}
	h.r.Expect(h.r.admin.List(h.r.t.Context(), hosts, client.InNamespace(sites))).To(Succeed())
	enrolled := h.exchanges(exchange("POST", "/v1/enrol", `"hostID"`))
	h.r.Expect(enrolled).NotTo(BeEmpty())
	for i := range hosts.Items {
		if strings.Contains(string(enrolled[0].Answer.Body), fmt.Sprintf("%q", hosts.Items[i].Name)) {
			return &hosts.Items[i]
		}
	}
	h.r.t.Fatalf("host %s is not there", h.name)
	return nil
}

func (h *recordedHost) patch(change func(*infrav1.ElementalHost)) {
	h.r.t.Helper()
	host := h.object()
	before := host.DeepCopy()
	change(host)
	h.r.Expect(h.r.admin.Patch(h.r.t.Context(), host, client.MergeFrom(before))).To(Succeed())
}

// end deletes an ElementalMachine.
func (r *recorder) end(name string) {
	r.t.Helper()
	machine := &infrav1.ElementalMachine{}
	machine.Namespace, machine.Name = sites, name
	r.Expect(r.admin.Delete(r.t.Context(), machine)).To(Succeed())
}

// exchange matches exchanges of a method and path whose request or answer has all the texts.
func exchange(method, path string, texts ...string) func(traffic.Exchange) bool {
	return func(e traffic.Exchange) bool {
		if e.Request.Method != method || !strings.HasPrefix(e.Request.URL+"?", path+"?") {
			return false
		}
		all := string(e.Request.Body) + string(e.Answer.Body) + e.Answer.Text
		for _, text := range texts {
			if !strings.Contains(all, text) {
				return false
			}
		}
		return true
	}
}

// exchanges returns the host's exchanges that match.
func (h *recordedHost) exchanges(matches func(traffic.Exchange) bool) []traffic.Exchange {
	h.r.t.Helper()
	raw, err := os.ReadFile(h.file)
	if os.IsNotExist(err) {
		return nil
	}
	h.r.Expect(err).NotTo(HaveOccurred())
	lines := strings.SplitAfter(string(raw), "\n")
	var found []traffic.Exchange
	for _, line := range lines[:len(lines)-1] {
		var e traffic.Exchange
		h.r.Expect(json.Unmarshal([]byte(line), &e)).To(Succeed())
		if matches(e) {
			found = append(found, e)
		}
	}
	return found
}

// write waits for an exchange and writes the first one to package traffic, without secrets.
func (h *recordedHost) write(name string, matches func(traffic.Exchange) bool) {
	h.r.t.Helper()
	var found []traffic.Exchange
	h.r.Eventually(func() int {
		found = h.exchanges(matches)
		return len(found)
	}).Should(BeNumerically(">", 0), name)
	e := found[0]
	if _, ok := e.Request.Header["Authorization"]; ok {
		e.Request.Header["Authorization"] = "Bearer recorded"
	}
	out := &bytes.Buffer{}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	h.r.Expect(encoder.Encode(e)).To(Succeed())
	certificates := regexp.MustCompile(`(-----BEGIN CERTIFICATE-----).*?(-----END CERTIFICATE-----)`)
	content := certificates.ReplaceAll(out.Bytes(), []byte(`$1\nrecorded\n$2`))
	folder := filepath.Join("..", "..", "harness", "traffic", filepath.FromSlash(traffic.Folder))
	h.r.Expect(os.WriteFile(filepath.Join(folder, name+".json"), content, 0o644)).To(Succeed())
}
