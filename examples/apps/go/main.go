// A worker of an app without any library: it assembles sessions out of fragments. A session ends by a fragment of
// type END, or after half an hour of silence.
//
//	go run . [SERVER [WORKER]]
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	silence = 30 * 60_000
	grace   = 5_000 // grace_ms of the app: task time is that of its records, less this
)

type object = map[string]any

// event is what poll tells, and what fetch answers.
type event struct {
	Number  uint64
	Event   string
	Task    string
	Epoch   uint64
	Seq     uint64
	Topic   string
	Due     [][]any
	Records []struct {
		Offset    uint64
		Key       string
		Value     json.RawMessage
		Timestamp int64
		Headers   map[string]*string
	}
	Next map[string]uint64
}

// task is a task that this worker has.
type task struct {
	name       string
	epoch, seq uint64
}

// worker speaks for one session.
type worker struct {
	base, token string
	timeout     int
}

// refusal is an answer of the broker that is no success.
type refusal struct{ Code, Detail string }

func (r refusal) Error() string { return r.Code + ": " + r.Detail }

// call sends a command, again until it is answered: each may be repeated.
func (w *worker) call(command string, body, answer any) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := ask(http.MethodPost, w.base+"/"+command, w.token, body, answer)
		var refused refusal
		if err == nil || errors.As(err, &refused) && refused.Code != "not_serving" && refused.Code != "paused" {
			return err
		}
		log.Printf("%s: %v", command, err)
		time.Sleep(pause)
	}
}

func ask(method, url, token string, body, answer any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, url, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Stafett-Worker", token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 400 {
		var refused refusal
		if err := json.Unmarshal(read, &refused); err != nil {
			return err
		}
		return refused
	}
	return json.Unmarshal(read, answer)
}

// open reads the sessions that a delivery needs.
func (w *worker) open(t *task, e *event) (map[string][]json.RawMessage, error) {
	keys, seen := []string{}, map[string]bool{}
	add := func(key string) {
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	for _, timer := range e.Due {
		add(timer[0].(string))
	}
	for _, record := range e.Records {
		add(record.Key)
	}
	var got struct {
		Values []*struct{ Value []json.RawMessage }
	}
	err := w.call("get", object{"task": t.name, "epoch": t.epoch, "table": "open", "keys": keys}, &got)
	open := map[string][]json.RawMessage{}
	for at, value := range got.Values {
		if value != nil {
			open[keys[at]] = value.Value
		}
	}
	return open, err
}

// handle works through one delivery and returns the commit for it.
func (t *task) handle(e *event, open map[string][]json.RawMessage) object {
	emit, put, remove, timers := []any{}, []any{}, []any{}, []any{}
	due := map[string]any{} // by key: when its session times out, nil where it is over
	finish := func(key string, timedOut bool) {
		value := object{"parts": open[key], "timed_out": timedOut}
		emit = append(emit, object{"topic": "sessions", "key": key, "value": value})
		delete(open, key)
		due[key] = nil
	}
	for _, timer := range e.Due {
		if key := timer[0].(string); open[key] != nil {
			finish(key, true)
		} else {
			due[key] = nil
		}
	}
	next := e.Next
	for _, record := range e.Records {
		open[record.Key] = append(open[record.Key], record.Value)
		due[record.Key] = record.Timestamp + silence
		if kind := record.Headers["type"]; kind != nil && *kind == "END" {
			finish(record.Key, false)
		}
		if fallsDue(due, record.Timestamp) {
			// The broker delivers the timer before the records that follow.
			next = map[string]uint64{e.Topic: record.Offset + 1}
			break
		}
	}
	for key, at := range due {
		timers = append(timers, []any{key, at})
		if at == nil {
			remove = append(remove, key)
		} else {
			put = append(put, []any{key, open[key]})
		}
	}
	return object{
		"task": t.name, "epoch": t.epoch, "seq": t.seq + 1, "next": next, "emit": emit,
		"put": object{"open": put}, "delete": object{"open": remove}, "timers": timers,
	}
}

// fallsDue tells whether a timer of the delivery is due at a record.
func fallsDue(due map[string]any, timestamp int64) bool {
	for _, at := range due {
		if at, isSet := at.(int64); isSet && at <= timestamp-grace {
			return true
		}
	}
	return false
}

// work does one delivery of a task, if there is one.
func (w *worker) work(t *task) error {
	var e event
	fetch := object{"task": t.name, "epoch": t.epoch, "records_max": 1000}
	if err := w.call("fetch", fetch, &e); err != nil || len(e.Due)+len(e.Records) == 0 {
		return err
	}
	open, err := w.open(t, &e)
	if err != nil {
		return err
	}
	if err := w.call("commit", t.handle(&e, open), &object{}); err != nil {
		return err
	}
	t.seq++
	return nil
}

// take takes an event.
func (w *worker) take(tasks map[string]*task, e *event) {
	switch e.Event {
	case "claimed":
		tasks[e.Task] = &task{name: e.Task, epoch: e.Epoch, seq: e.Seq}
	case "revoke":
		// Everything is committed between two events.
		if err := w.call("release", object{"task": e.Task, "epoch": e.Epoch}, &object{}); err != nil {
			log.Print(err)
		}
		delete(tasks, e.Task)
	case "lost":
		delete(tasks, e.Task)
	}
}

// session joins, and works until it is told to stop, or has to join again.
func session(app, name string, stop <-chan os.Signal) (bool, error) {
	w := worker{base: app + "/workers/" + url.PathEscape(name)}
	var joined struct {
		Token   string
		Resumed []struct {
			Task  string
			Epoch uint64
		}
	}
	if err := ask(http.MethodPost, w.base+"/join", "", object{}, &joined); err != nil {
		return false, err
	}
	w.token = joined.Token
	for _, claim := range joined.Resumed {
		// It comes again as an event, under a new epoch.
		if err := w.call("release", object{"task": claim.Task, "epoch": claim.Epoch}, &object{}); err != nil {
			return false, err
		}
	}
	tasks := map[string]*task{}
	for after := uint64(0); ; {
		select {
		case <-stop:
			return true, w.call("leave", object{}, &object{})
		default:
		}
		var polled struct{ Events []event }
		if err := w.call("poll", object{"after": after, "wait_ms": 20}, &polled); err != nil {
			return false, err
		}
		for at := range polled.Events {
			after = polled.Events[at].Number
			w.take(tasks, &polled.Events[at])
		}
		for _, t := range tasks {
			if err := w.work(t); err != nil {
				log.Print(err) // what was done since the last commit never happened
				delete(tasks, t.name)
				_ = w.call("release", object{"task": t.name, "epoch": t.epoch}, &object{})
			}
		}
	}
}

func main() {
	server, name := "http://127.0.0.1:7070", fmt.Sprintf("go-%d", os.Getpid())
	if len(os.Args) > 1 {
		server = os.Args[1]
	}
	if len(os.Args) > 2 {
		name = os.Args[2]
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	app := server + "/v1/apps/sessions"
	definition := object{
		"topics": []string{"fragments"}, "tables": object{"open": object{}}, "worker_timeout_ms": 2000,
	}
	for {
		err := ask(http.MethodPut, app, "", definition, &object{})
		if err == nil {
			var isOver bool
			if isOver, err = session(app, name, stop); isOver {
				return
			}
		}
		log.Print(err)
		time.Sleep(200 * time.Millisecond)
	}
}
