package linux_test

import (
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
)

// Network plugins put programs on the host, and those go with the node. What the host had, and what packages or a bundle
// have brought meanwhile, stays.
func TestCleanRemovesProgramsOfNetworkPlugins(t *testing.T) {
	const dir, bridge, portmap, bundled, plugin = "/opt/cni/bin", "/opt/cni/bin/bridge", "/opt/cni/bin/portmap", "/opt/cni/bin/ptp", "/opt/cni/bin/flannel"
	const query = "env LC_ALL=C dpkg-query --search "
	for name, test := range map[string]struct {
		preexisting []string
		// files are those beside the programs.
		files map[string]string
		stays map[string]bool
	}{
		"host had programs":   {preexisting: []string{bridge, portmap, dir, "/opt/cni"}, stays: map[string]bool{bridge: true, portmap: true, bundled: true, plugin: false}},
		"host had no folder":  {preexisting: []string{"/etc/cni"}, stays: map[string]bool{bridge: false, portmap: false, bundled: true, plugin: false}},
		"nothing is recorded": {stays: map[string]bool{bridge: true, portmap: true, bundled: true, plugin: true}},
		"an older agent recorded no programs": {
			preexisting: []string{dir, "/opt/cni"}, stays: map[string]bool{bridge: true, portmap: true, bundled: true, plugin: true},
		},
		"packages own one program, and do not answer for others": {
			preexisting: []string{bridge, dir}, files: map[string]string{"/var/lib/dpkg/status": "x"},
			stays: map[string]bool{bridge: true, portmap: true, bundled: true, plugin: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := newBox(t, test.files)
			for _, program := range []string{bridge, portmap, bundled, plugin} {
				b.write(program, "x")
			}
			b.answers[query+portmap] = "kubernetes-cni: " + portmap + "\n"
			l := linux.New(linux.Options{Root: b.root, Commands: b, Clock: b, Kernel: b, Installation: installed{bundled}})
			if err := l.Clean(t.Context(), test.preexisting); err != nil {
				t.Fatal(err)
			}
			for program, stays := range test.stays {
				if b.exists(program) != stays {
					t.Errorf("%s exists: %t", program, b.exists(program))
				}
			}
		})
	}
}
