package elemental

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// live returns a rig with two disks that was booted from live media.
func live(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.boot(ModeLive)
	for _, disk := range []string{"sda", "sdb"} {
		r.write("sys/block/"+disk+"/size", "2048000\n")
		r.write("sys/block/"+disk+"/dev", "8:"+disk+"\n")
		r.write("sys/block/"+disk+"/device/model", "Model\n")
		r.write("sys/block/"+disk+"/device/serial", "serial-"+disk+"\n")
	}
	r.write("sys/block/sda/sda1/partition", "1\n")
	r.write("sys/block/sda/sda1/dev", "8:1\n")
	r.write("proc/self/mountinfo", "")
	return r
}

func (r *rig) installer() *Installer { return &Installer{System: r.system, Log: quiet()} }

const agentConfig = "servers: [https://192.0.2.1]\ntoken: secret # of the registration\n"

func TestInstall(t *testing.T) {
	r := live(t)
	extra := filepath.Join(r.dir, "extra.yaml")
	if err := os.WriteFile(extra, []byte("name: extra\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	plan, err := r.installer().Plan(Settings{Device: "/dev/sda", Image: newImage, CloudInit: []string{extra}, ConfigDir: "/etc/x", PowerOff: true, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := `disk sda, Model, serial number "serial-sda", 1000 MiB, with partitions sda1`; plan.Erases != want {
		t.Errorf("the plan erases %q", plan.Erases)
	}
	if r.calls() != "" {
		t.Fatal("Plan called the CLI")
	}
	if err := r.installer().Install(t.Context(), plan, []byte(agentConfig)); err != nil {
		t.Fatal(err)
	}
	seedFile := filepath.Join(r.root, seedPath)
	want := "--config-dir /etc/x install --force --poweroff\n" +
		"ELEMENTAL_INSTALL_CLOUD_INIT=" + seedFile + "," + extra + "\n" +
		"ELEMENTAL_INSTALL_SYSTEM=oci:registry/os:2\nELEMENTAL_INSTALL_TARGET=/dev/sda\n"
	if r.calls() != want {
		t.Errorf("called\n%swant\n%s", r.calls(), want)
	}
	if _, err := os.Stat(seedFile); err == nil {
		t.Error("the token is still on the live system")
	}
}

func TestInstallDefaults(t *testing.T) {
	r := live(t)
	plan, err := r.installer().Plan(Settings{Device: "/dev/sdb"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(plan.Command, []string{"install", "--reboot"}) || strings.Contains(strings.Join(plan.Environment, "\n"), "SYSTEM") {
		t.Errorf("the plan is %v with %v", plan.Command, plan.Environment)
	}
}

// At the first boot of the installed system, the boot stage of the CLI applies the
// seed. The test reads the seed and runs its last command in a shell.
func TestSeed(t *testing.T) {
	r := live(t)
	plan, err := r.installer().Plan(Settings{Device: "/dev/sda"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.installer().Install(t.Context(), plan, []byte(agentConfig)); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(r.dir, "installed/oem/90_custom.yaml")
	data, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	var seed struct {
		Stages map[string][]struct {
			If          string
			Directories []struct {
				Path        string
				Permissions uint32
			}
			Files []struct {
				Path, Content string
				Permissions   uint32
			}
			Commands []string
		}
	}
	if err := yaml.Unmarshal(data, &seed); err != nil {
		t.Fatal(err)
	}
	steps := seed.Stages["boot"]
	if len(seed.Stages) != 1 || len(steps) != 2 {
		t.Fatalf("the seed is\n%s", data)
	}
	file := steps[0].Files[0]
	if file.Path != ConfigPath || file.Content != agentConfig || file.Permissions != 0o600 {
		t.Errorf("the seed's file is %+v", file)
	}
	if dir := steps[0].Directories[1]; dir.Path != filepath.Dir(ConfigPath) || dir.Permissions != 0o700 {
		t.Errorf("the seed's directory is %+v", dir)
	}
	if steps[0].If != "[ ! -s "+ConfigPath+" ]" || steps[1].If != "[ -s "+ConfigPath+" ]" {
		t.Errorf("the conditions are %q and %q", steps[0].If, steps[1].If)
	}
	remove := steps[1].Commands[len(steps[1].Commands)-1]
	other := filepath.Join(filepath.Dir(copied), "91_custom.yaml")
	if err := os.WriteFile(other, []byte("name: mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.shell(strings.ReplaceAll(remove, OEMDir+"/", filepath.Dir(copied)+"/"))
	if _, err := os.Stat(copied); err == nil {
		t.Error("the seed with the token still exists")
	}
	if _, err := os.Stat(other); err != nil {
		t.Error("another file was removed")
	}
}

func TestInstallRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		settings Settings
		prepare  func(*rig)
		message  string
	}{
		"an installed system": {Settings{Device: "/dev/sda"}, func(r *rig) { r.boot(ModeActive) }, "not booted from live media"},
		"the recovery system": {Settings{Device: "/dev/sda"}, func(r *rig) { r.boot(ModeRecovery) }, "not booted from live media"},
		"another Linux":       {Settings{Device: "/dev/sda"}, func(r *rig) { r.boot("") }, "no Elemental OS"},
		"no device":           {Settings{}, nil, "device"},
		"a flag as a device":  {Settings{Device: "--force"}, nil, "device file"},
		"a partition":         {Settings{Device: "/dev/sda1"}, nil, "no disk of this host"},
		"a missing device":    {Settings{Device: "/dev/sdz"}, nil, "no disk of this host"},
		"a malformed image":   {Settings{Device: "/dev/sda", Image: "os:2"}, nil, "no image"},
		"the live medium itself": {Settings{Device: "/dev/sda"}, func(r *rig) {
			r.write("proc/self/mountinfo", "1 1 8:1 / /run/initramfs/live ro - iso9660 /dev/sda1 ro\n")
		}, "in use"},
	} {
		t.Run(name, func(t *testing.T) {
			r := live(t)
			if test.prepare != nil {
				test.prepare(r)
			}
			if plan, err := r.installer().Plan(test.settings); err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("planned %+v, %v", plan, err)
			}
		})
	}
}

func TestFailedInstall(t *testing.T) {
	r := live(t)
	r.setBehavior("fail")
	plan, err := r.installer().Plan(Settings{Device: "/dev/sda"})
	if err != nil {
		t.Fatal(err)
	}
	err = r.installer().Install(t.Context(), plan, []byte(agentConfig))
	if err == nil || !strings.Contains(err.Error(), "403 Forbidden") || strings.Contains(err.Error(), "abc") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.root, seedPath)); err == nil {
		t.Error("the token is still on the live system")
	}
}
