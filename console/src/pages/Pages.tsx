// Addresses and their pages.
import { Component, type ReactNode } from 'react';
import { Link, to, useRoute } from '../ui/route';
import { Quotas } from './access/Quotas';
import { User } from './access/User';
import { Users } from './access/Users';
import { Api } from './Api';
import { App } from './apps/App';
import { Apps } from './apps/Apps';
import { Audit } from './Audit';
import { Client } from './Client';
import { Clients } from './Clients';
import { Connection, Connections } from './Connections';
import { ConsumersPage } from './Consumers';
import { Definitions } from './definitions/Definitions';
import { Events } from './Events';
import { Exchange, Exchanges } from './exchanges/Exchanges';
import { Group } from './groups/Group';
import { Groups } from './groups/Groups';
import { Journal } from './Journal';
import { Live } from './Live';
import { LiveClient, LiveTopic } from './LiveClient';
import { Log } from './Log';
import { Namespaces } from './Namespaces';
import { Node } from './Node';
import { Overview } from './Overview';
import { Policies } from './Policies';
import { Queue } from './queues/Queue';
import { Queues } from './queues/Queues';
import { Sink } from './sinks/Sink';
import { Sinks } from './sinks/Sinks';
import { Topic } from './topics/Topic';
import { Topics } from './topics/Topics';

export function Pages() {
  const { parts } = useRoute();
  return <Boundary key={parts.join('/')}>{page(parts)}</Boundary>;
}

function page([name = '', first, second]: string[]): ReactNode {
  switch (name) {
    case '':
      return <Overview />;
    case 'queues':
      return first !== undefined && second !== undefined ? <Queue namespace={first} name={second} /> : <Queues />;
    case 'topics':
      return first === undefined ? <Topics /> : <Topic name={first} />;
    case 'groups':
      return first === undefined ? <Groups /> : <Group name={first} />;
    case 'exchanges':
      return first !== undefined && second !== undefined ? <Exchange namespace={first} name={second} /> : <Exchanges />;
    case 'clients':
      return first === undefined ? <Clients /> : <Client name={first} />;
    case 'apps':
      return first === undefined ? <Apps /> : <App name={first} />;
    case 'sinks':
      return first === undefined ? <Sinks /> : <Sink name={first} />;
    case 'live':
      if (first === 'clients' && second !== undefined) return <LiveClient id={second} />;
      return first === 'topics' && second !== undefined ? <LiveTopic name={second} /> : <Live />;
    case 'connections':
      return first === undefined ? <Connections /> : <Connection id={first} />;
    case 'consumers':
      return <ConsumersPage />;
    case 'node':
      return <Node />;
    case 'journal':
      return <Journal />;
    case 'events':
      return <Events />;
    case 'log':
      return <Log />;
    case 'users':
      return first === undefined ? <Users /> : <User name={first} />;
    case 'quotas':
      return <Quotas />;
    case 'policies':
      return <Policies />;
    case 'api':
      return <Api />;
    case 'audit':
      return <Audit />;
    case 'namespaces':
      return <Namespaces />;
    case 'definitions':
      return <Definitions />;
    default:
      return (
        <div className="empty">
          <h1>There is no such page</h1>
          <Link href={to([])}>To the overview</Link>
        </div>
      );
  }
}

/** A mistake of one page leaves the frame usable. */
class Boundary extends Component<{ children: ReactNode }, { error?: Error }> {
  override state: { error?: Error } = {};
  static getDerivedStateFromError(error: Error) {
    return { error };
  }
  override render() {
    if (!this.state.error) return this.props.children;
    return (
      <div className="error" role="alert">
        This page failed: {this.state.error.message}. <button type="button" onClick={() => this.setState({ error: undefined })}>Try again</button>
      </div>
    );
  }
}
