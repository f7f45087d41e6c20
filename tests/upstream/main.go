// Command upstream answers scenarios with the plugins of kube-scheduler itself.
//
// It reads one request a line from standard input: a scenario as `berth plan` takes it, and the node that
// berth chose for each pod. It writes one line for each pod, with the cluster as berth's choices before that
// pod left it, and then one line that says how the request ended.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// Longest request, in bytes.
const requestBytesMax = 256 << 20

// A request is a scenario; the profile is always kube-scheduler's default one.
type request struct {
	Objects  []json.RawMessage  `json:"objects"`
	Schedule []string           `json:"schedule"`
	Placed   map[string]*string `json:"placed"`
	// Pods that were accepted before validation refused them, as namespace/name.
	Grandfathered []string `json:"grandfathered"`
	// Whether to say what preemption could do for a pod that no node takes.
	Preempt bool `json:"preempt"`
}

// An ending is the last line of an answer.
type ending struct {
	Done  bool   `json:"done"`
	Error string `json:"error,omitempty"`
}

// A greeting says what answers.
type greeting struct {
	Version string           `json:"version"`
	Filters []string         `json:"filters"`
	Weights map[string]int32 `json:"weights"`
}

func main() {
	klog.SetLogger(logr.Discard())
	metrics.Register()
	out := bufio.NewWriter(os.Stdout)
	lines := json.NewEncoder(out)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), requestBytesMax)

	scheduler, err := newScheduler()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say(lines, out, greeting{Version: version(), Filters: scheduler.filters(), Weights: scheduler.weights()})
	for in.Scan() {
		end := ending{Done: true}
		if err := serve(scheduler, in.Bytes(), func(v verdict) { say(lines, out, v) }); err != nil {
			end = ending{Error: err.Error()}
		}
		say(lines, out, end)
	}
	if err := in.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(lines *json.Encoder, out *bufio.Writer, line any) {
	if err := lines.Encode(line); err != nil {
		panic(err)
	}
	if err := out.Flush(); err != nil {
		os.Exit(1) // nobody listens any more
	}
}

func serve(scheduler *scheduler, line []byte, answer func(verdict)) error {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return err
	}
	cluster, err := scheduler.newCluster(asked)
	if err != nil {
		return err
	}
	defer cluster.close()
	for _, name := range asked.Schedule {
		verdict, err := cluster.evaluate(name, asked.Preempt)
		if err != nil {
			return fmt.Errorf("pod %s: %w", name, err)
		}
		answer(verdict)
		if node := asked.Placed[name]; node != nil {
			if err := cluster.place(name, *node); err != nil {
				return fmt.Errorf("pod %s: %w", name, err)
			}
		}
	}
	return nil
}

func version() string {
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, module := range built.Deps {
			if module.Path == "k8s.io/kubernetes" {
				return module.Version
			}
		}
	}
	return "unknown"
}
