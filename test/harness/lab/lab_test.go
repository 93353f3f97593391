package lab

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/repository"
)

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options Options
		bad     bool
	}{
		{"nothing given", Options{}, false},
		{"all given", Options{Name: "a-1", Hosts: 50, Subnet: "10.9.0.0/16", Management: ManagementKind, State: "x"}, false},
		{"a name docker refuses", Options{Name: "A b"}, true},
		{"too many hosts", Options{Hosts: 51}, true},
		{"a subnet that is too small", Options{Subnet: "10.0.0.0/25"}, true},
		{"IPv6", Options{Subnet: "fd00::/64"}, true},
		{"no subnet", Options{Subnet: "nonsense"}, true},
		{"an unknown management cluster", Options{Management: "cloud"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.options.complete()
			if (err != nil) != tt.bad {
				t.Fatalf("got error %v", err)
			}
			if err == nil && (got.Hosts == 0 || got.Name == "" || !filepath.IsAbs(got.State) || !filepath.IsAbs(got.Checkout)) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestFromEnvironment(t *testing.T) {
	environment := map[string]string{"LAB_HOSTS": "3", "LAB_NAME": "env", "LAB_SUBNET": "10.1.0.0/24"}
	get := func(name string) string { return environment[name] }
	got, err := Options{Name: "flag"}.FromEnvironment(get)
	if err != nil || got.Name != "flag" || got.Hosts != 3 || got.Subnet != "10.1.0.0/24" {
		t.Errorf("got %+v, %v", got, err)
	}
	environment["LAB_HOSTS"] = "many"
	if _, err := (Options{}).FromEnvironment(get); err == nil {
		t.Error("a number that is none was accepted")
	}
}

func TestFindCheckout(t *testing.T) {
	folder, err := findCheckout(".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "test", "harness", "lab", "doc.go")); err != nil {
		t.Error(err)
	}
	if _, err := findCheckout(t.TempDir()); err == nil {
		t.Error("a folder outside was accepted")
	}
}

func TestNetworkFiles(t *testing.T) {
	files := map[string]string{}
	for _, f := range networkFiles("172.30.0.0/24", 2) {
		files[f.Path] = string(f.Content)
	}
	var conflist struct {
		Plugins []struct {
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal([]byte(files["/etc/cni/net.d/10-lab.conflist"]), &conflist); err != nil {
		t.Fatal(err)
	}
	if got := conflist.Plugins[0].IPAM.Ranges[0][0].Subnet; got != "10.244.2.0/24" {
		t.Errorf("got pod subnet %s", got)
	}
	routes := files["/etc/lab/routes"]
	for line, want := range map[string]bool{
		"route replace default via 172.30.0.1\n":         true,
		"route replace 10.244.0.0/24 via 172.30.0.10\n":  true,
		"route replace 10.244.1.0/24 via 172.30.0.11\n":  true,
		"route replace 10.244.50.0/24 via 172.30.0.60\n": true,
		"route replace 10.244.51.0/24 via 172.30.0.61\n": true,
		"route replace 10.244.52.0/24 via 172.30.0.62\n": true,
		"route replace 10.244.2.0/24":                    false,
	} {
		if strings.Contains(routes, line) != want {
			t.Errorf("%q: want %t in\n%s", line, want, routes)
		}
	}
}

func TestFreeAddress(t *testing.T) {
	l := &Lab{options: Options{Subnet: "172.30.0.0/24"}}
	if got := l.FreeAddress(2); got != "172.30.0.72" {
		t.Errorf("got %s", got)
	}
	if got := hostAddress("172.30.0.0/24", maxHosts); got != "172.30.0.60" {
		t.Errorf("the last host has %s", got)
	}
}

func TestSecond(t *testing.T) {
	first, err := New(Options{Hosts: 2, State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	second, empty := first.Second(), NewEmpty(first)
	if got := second.Management(); got.Name != "management-2" || got.Address != "172.30.0.61" {
		t.Errorf("the second management cluster is %s, %s", got.Name, got.Address)
	}
	if got := empty.Management(); got.Name != "management-empty" || got.Address != "172.30.0.62" {
		t.Errorf("the empty management cluster is %s, %s", got.Name, got.Address)
	}
	if got := first.Management(); got.Name != "management" || got.Address != "172.30.0.10" {
		t.Errorf("the first management cluster is %s, %s", got.Name, got.Address)
	}
	other := Build{Checkout: "/other", Manifests: "/manifests/v0.2.0"}.Lab(first, 2)
	if got := other.Management(); got.Name != "management-build" || got.Address != "172.30.0.63" {
		t.Errorf("the management cluster of another build is %s, %s", got.Name, got.Address)
	}
	if got := other.Hosts(); len(got) != 2 || got[0].Name != "host-21" || got[1].Address != "172.30.0.32" {
		t.Errorf("the hosts of another build are %v", got)
	}
	if first.Kubeconfig() == second.Kubeconfig() || first.Kubeconfig() == other.Kubeconfig() || empty.Kubeconfig() == second.Kubeconfig() {
		t.Error("two have the same kubeconfig")
	}
	for i, host := range second.Hosts() {
		if want := first.Hosts()[i]; host.Container() != want.Container() || host.Address != want.Address {
			t.Errorf("host %d is %s, want %s", i+1, host.Container(), want.Container())
		}
	}
}

func TestClusterctlConfig(t *testing.T) {
	r := repository.Repository{Root: "/repo", Version: "v1.14.2"}
	text := clusterctlConfig(r, release{version: "v0.1.0", folder: "/release"}, variables("172.30.0.10"))
	var config struct {
		Providers   []struct{ Name, Type, URL string }
		CertManager map[string]string `json:"cert-manager"`
		URL         string            `json:"ELEMENTAL_AGENT_API_URL"`
		Port        string            `json:"ELEMENTAL_AGENT_API_NODE_PORT"`
	}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	// clusterctl demands <label>/<version>/<file> at the end.
	want := "file:///repo/infrastructure-elemental/v0.1.0/infrastructure-components.yaml"
	if p := config.Providers[len(config.Providers)-1]; p.Name != "elemental" || p.Type != "InfrastructureProvider" || p.URL != want {
		t.Errorf("got %+v", p)
	}
	if config.CertManager["externallyProvisioned"] != "true" || config.URL != "https://172.30.0.10:30443" || config.Port != "30443" {
		t.Errorf("got %+v", config)
	}
}

func TestFindRelease(t *testing.T) {
	checkout := t.TempDir()
	s := sources{checkout: checkout}
	if got, err := s.findRelease(); err != nil || got.folder != "" {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, version := range []string{"v0.9.0", "v0.10.0", "v0.10.0-rc.1", "vnonsense"} {
		file := filepath.Join(checkout, "out", "manifests", version, "infrastructure-components.yaml")
		if err := writeFile(file, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.findRelease(); err != nil || got.version != "v0.10.0" {
		t.Errorf("got %+v, %v", got, err)
	}
	s.release = filepath.Join(checkout, "out", "manifests", "v0.9.0")
	if got, err := s.findRelease(); err != nil || got.version != "v0.9.0" {
		t.Errorf("got %+v, %v", got, err)
	}
	s.release = checkout
	if _, err := s.findRelease(); err == nil {
		t.Error("a folder without a release was accepted")
	}
}

func TestManagerImage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "components.yaml")
	const other = "kind: ConfigMap\nmetadata: {name: x}\nspec: not what a Deployment has\n---\n"
	const deployment = "kind: Deployment\nspec: {replicas: '${REPLICAS:=1}', template: {spec: {containers: [{name: a, image: b}, {name: manager, image: 'example.com/m:v1'}]}}}\n"
	if err := writeFile(file, []byte(other+deployment)); err != nil {
		t.Fatal(err)
	}
	if got, err := managerImage(file); err != nil || got != "example.com/m:v1" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := writeFile(file, []byte(other)); err != nil {
		t.Fatal(err)
	}
	if _, err := managerImage(file); err == nil {
		t.Error("manifests without a manager were accepted")
	}
}

func TestUnitProgram(t *testing.T) {
	for unit, want := range map[string]string{
		"[Service]\nExecStart=/usr/bin/agent run --x\n": "/usr/bin/agent",
		"[Service]\nExecStart=agent\n":                  "",
		"[Service]\n# ExecStart=/no\n":                  "",
	} {
		if got := unitProgram(unit); got != want {
			t.Errorf("%q: got %q", unit, got)
		}
	}
}

func TestRegistration(t *testing.T) {
	text, err := registration(Enrolment{Name: "site", Namespace: "default", Labels: map[string]string{"role": "worker"}})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Spec struct {
			HostTemplate struct{ Labels map[string]string }
		}
	}
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if l := got.Spec.HostTemplate.Labels; l["role"] != "worker" || l[GroupLabel] != "site" {
		t.Errorf("got labels %v", l)
	}
}

func TestExplains(t *testing.T) {
	for kind, want := range map[string]bool{
		"elementalhosts.infrastructure.cluster.x-k8s.io": true, "machines.cluster.x-k8s.io": true, "pods": true,
		"secrets": false, "events": false, "pods.metrics.k8s.io": false, "clusterroles.rbac.authorization.k8s.io": false,
	} {
		if got := explains(kind); got != want {
			t.Errorf("%s: got %t", kind, got)
		}
	}
}

func TestUnconnected(t *testing.T) {
	const text = `{"items": [
		{"status": {"addresses": [{"address": "172.30.0.11"}], "conditions": [{"type": "Connected", "status": "True"}]}},
		{"status": {"addresses": [{"address": "172.30.0.12"}], "conditions": [{"type": "Connected", "status": "False"}]}},
		{"status": {"addresses": [{"address": "172.30.0.13"}], "conditions": [{"type": "Ready", "status": "True"}]}}
	]}`
	var list hostList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	var hosts []*engine.Host
	for number := 1; number <= 4; number++ {
		hosts = append(hosts, &engine.Host{Name: "host", Address: hostAddress("172.30.0.0/24", number)})
		hosts[number-1].Name += string(rune('0' + number))
	}
	if got, want := unconnected(list, hosts), []string{"host2", "host3", "host4"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// A site's router begins nothing, and lets its hosts begin everything.
func TestSite(t *testing.T) {
	l, err := New(Options{Hosts: 2, State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]struct {
		subnet string
		hosts  int
	}{
		"overlap": {"172.30.0.0/16", 1}, "too small": {"172.31.0.0/25", 1}, "IPv6": {"fd00::/64", 1},
		"no hosts": {"172.31.0.0/24", 0}, "too many hosts": {"172.31.0.0/24", 16},
	} {
		if _, err := l.Site(bad.subnet, bad.hosts); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	site, err := l.Site("172.31.0.0/24", 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := site.Hosts()[1]; got.Name != "site-2" || got.Address != "172.31.0.41" {
		t.Errorf("the second host is %s, %s", got.Name, got.Address)
	}
	files := map[string]string{}
	for _, f := range site.networkFiles(siteFirst) {
		files[f.Path] = string(f.Content)
	}
	if want := "route replace default via 172.31.0.2\nroute replace 10.244.31.0/24 via 172.31.0.41\n"; files["/etc/lab/routes"] != want {
		t.Errorf("the routes of the first host are\n%s", files["/etc/lab/routes"])
	}
	for _, want := range []string{
		"ct state new ip saddr != 172.31.0.0/24 ip daddr 172.31.0.0/24 counter name refused drop",
		"ip saddr 172.31.0.0/24 ip daddr != 172.31.0.0/24 masquerade",
	} {
		if !strings.Contains(site.rules(), want) {
			t.Errorf("%q is not in the rules\n%s", want, site.rules())
		}
	}
}

// Machines of a generated cluster use hosts with swap, and nothing else is changed.
func TestAllowSwap(t *testing.T) {
	const cluster = "kind: Cluster\nmetadata:\n  name: c"
	got, err := allowSwap(cluster + "\n---\nkind: ElementalMachineTemplate\nspec:\n  template:\n    spec:\n      hostSelector: {}\n---\n" + cluster + "\n")
	if err != nil {
		t.Fatal(err)
	}
	want := cluster + "\n---\nkind: ElementalMachineTemplate\nspec:\n  template:\n    spec:\n      hostSelector: {}\n      ignoreFindings:\n      - Swap\n---\n" + cluster + "\n"
	if got != want {
		t.Errorf("got %s", got)
	}
}
