package bootstrap_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
)

// The standardized instance data of cloud-init has a value, as on a host without a cloud.
func TestTemplatesHaveTheInstanceData(t *testing.T) {
	t.Parallel()
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	for name, c := range map[string]struct{ release, template, want string }{
		"names":      {"", "{{ v1.instance_id }} {{ v1.local_hostname }} {{ ds.meta_data.hostname }} {{ ds.meta_data.instance_id }} {{ hostname }}", "i-1 edge-7 edge-7 i-1 edge-7"},
		"no cloud":   {"", "{{ v1.cloud_name }} {{ v1.platform }} {{ cloud_id }} {{ v1.region }} {{ v1.public_ssh_keys | length }}", "unknown nocloud nocloud None 0"},
		"Debian":     {"ID=debian\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n", "{{ v1.distro }} {{ distro_version }} {{ v1.distro_release }} {{ v1.variant }}", "debian 12 bookworm debian"},
		"Leap":       {"ID=\"opensuse-leap\"\nVERSION_ID=\"15.6\"\n", "{{ v1.distro }} {{ v1.distro_version }} {{ v1.distro_release }} {{ v1.variant }}", "opensuse-leap 15.6 " + machine + " suse"},
		"Red Hat":    {"ID=rhel\nVERSION_ID=9.4\n", "{{ v1.distro }} {{ v1.variant }}", "redhat rhel"},
		"the kernel": {"", "{{ v1.machine }} {{ v1.kernel_release | length > 0 }}", machine + " True"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "etc/os-release"), []byte(c.release), 0o600); err != nil {
				t.Fatal(err)
			}
			vars, err := bootstrap.Variables(root, "i-1", "edge-7")
			if err != nil {
				t.Fatal(err)
			}
			config, warnings, err := parser.Parse([]byte("## template: jinja\n#cloud-config\nruncmd:\n- echo "+c.template+"\n"), "", vars)
			if err != nil || len(warnings) != 0 {
				t.Fatalf("got %v, warnings %v", err, warnings)
			}
			if got := bootstrapdata.Script(config.Commands); !strings.Contains(got, "echo "+c.want+"\n") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
