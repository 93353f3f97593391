package hostname_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hostname"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestRender(t *testing.T) {
	data := hostname.Data{HostID: "h7k2", Hostname: "Node-7.Berlin.example.com", Inventory: protocol.Inventory{
		MachineID: "0123abc",
		SMBIOS:    protocol.SMBIOS{SerialNumber: "  SN/42_é ", Manufacturer: strings.Repeat("x", 80)},
		NICs:      []protocol.NIC{{Name: "eth0", MAC: "52:54:00:AB:CD:EF"}},
	}}
	for name, tc := range map[string]struct {
		pattern, want, err string
	}{
		"default":             {pattern: "", want: "host-h7k2"},
		"fixed":               {pattern: "edge", want: "edge"},
		"serial is sanitised": {pattern: "edge-{{ .Inventory.SMBIOS.SerialNumber }}", want: "edge-sn-42"},
		"list index":          {pattern: "{{ (index .Inventory.NICs 0).MAC }}", want: "52-54-00-ab-cd-ef"},
		"condition":           {pattern: "{{ if .Inventory.SMBIOS.UUID }}x{{ else }}{{ .HostID }}{{ end }}", want: "h7k2"},
		"shortened":           {pattern: "{{ .Inventory.SMBIOS.Manufacturer }}", want: strings.Repeat("x", 63)},
		"cut at a dash":       {pattern: strings.Repeat("y", 62) + "-{{ .HostID }}", want: strings.Repeat("y", 62)},
		"own name":            {pattern: "edge-{{ .Hostname }}", want: "edge-node-7"},
		"not reported":        {pattern: "{{ .HostID }}-{{ .Inventory.Kubernetes.Kubelet.Version }}", want: "h7k2"},
		"nothing left":        {pattern: "{{ .Inventory.SMBIOS.UUID }}!", err: "empty name"},
		"index out of range":  {pattern: "{{ (index .Inventory.NICs 7).MAC }}", err: "executing the pattern"},
		"too long":            {pattern: "{{ printf \"%09999d\" 1 }}", err: "longer than 4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := hostname.Render(tc.pattern, data)
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tc.want))
			g.Expect(validation.IsDNS1123Label(got)).To(BeEmpty())
		})
	}
}

// A name that is none is not made into one: hosts with different names would get the same.
func TestThreat81_OwnNamesThatAreNone(t *testing.T) {
	for _, name := range []string{
		"", ".", "localhost", "localhost.localdomain", "node_1", "node 1", "node/1", "-node", "node-", "nodé", strings.Repeat("n", 64), "{{.HostID}}", "no\nde",
	} {
		g := NewWithT(t)
		_, err := hostname.Render("{{ .Hostname }}", hostname.Data{HostID: "h7k2", Hostname: name})
		g.Expect(err).To(MatchError(ContainSubstring("no host name of its own")), "%q", name)
	}
}

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		pattern, err string
	}{
		"blank":            {pattern: ""},
		"serial":           {pattern: "a-{{ .Inventory.SMBIOS.SerialNumber }}"},
		"programs":         {pattern: "a-{{ .Inventory.Kubernetes.Kubelet.Version }}"},
		"only the unknown": {pattern: "{{ .Inventory.MachineID }}"},
		"list index":       {pattern: "{{ (index .Inventory.NICs 0).MAC }}"},
		"own name":         {pattern: "{{ .Hostname }}"},
		"doubling":         {pattern: `{{ "\\" ` + strings.Repeat("|js", 60) + " }}", err: "longer than 4096 bytes"},
		"repeating":        {pattern: `{{ with "aaaaaaaaaaaaaaaaaaaaaaaa" }}` + strings.Repeat(`{{ with printf "%[1]s%[1]s%[1]s" . }}`, 5) + strings.Repeat("{{ end }}", 6), err: "longer than 4096 bytes"},
		"unclosed":         {pattern: "a-{{ .HostID", err: "parsing the pattern"},
		"unknown field":    {pattern: "{{ .Inventory.Serial }}", err: "can't evaluate field Serial"},
		"unknown function": {pattern: "{{ env \"HOME\" }}", err: `function "env" not defined`},
		"loop":             {pattern: "{{ range .Inventory.Disks }}x{{ end }}", err: "may not use range"},
		"hidden loop":      {pattern: "{{ if .HostID }}{{ with .HostID }}{{ range 9 }}x{{ end }}{{ end }}{{ end }}", err: "may not use range"},
		"recursion":        {pattern: "{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}", err: "may not define templates"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := hostname.Validate(tc.pattern)
			if tc.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
		})
	}
}

func TestWithSuffix(t *testing.T) {
	g := NewWithT(t)
	g.Expect(hostname.WithSuffix("edge", "h7k2")).To(Equal("edge-h7k2"))
	g.Expect(hostname.WithSuffix("", "h7k2")).To(Equal("h7k2"))
	g.Expect(hostname.WithSuffix("edge", "")).To(Equal("edge"))
	long := hostname.WithSuffix(strings.Repeat("a", 58)+"-bcd", "h7k2")
	g.Expect(long).To(Equal(strings.Repeat("a", 58) + "-h7k2"))
	g.Expect(hostname.WithSuffix("edge", strings.Repeat("z", 70))).To(Equal(strings.Repeat("z", 63)))
}

func FuzzRender(f *testing.F) {
	f.Add("host-{{ .HostID }}", "SN 1")
	f.Add("{{ .Inventory.SMBIOS.SerialNumber }}", "-é-")
	f.Fuzz(func(t *testing.T, pattern, serial string) {
		name, err := hostname.Render(pattern, hostname.Data{HostID: "h", Inventory: protocol.Inventory{SMBIOS: protocol.SMBIOS{SerialNumber: serial}}})
		if err == nil && len(validation.IsDNS1123Label(name)) > 0 {
			t.Errorf("%q is no DNS label", name)
		}
	})
}
