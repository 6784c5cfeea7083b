// Which page an address names.
import { Component, type ReactNode } from 'react';
import { Link, to, useRoute } from '../ui/route';
import { Overview } from './Overview';
import { Queue } from './queues/Queue';
import { Queues } from './queues/Queues';

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
